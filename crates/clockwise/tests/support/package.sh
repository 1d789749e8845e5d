#!/bin/sh
# Installs, upgrades, removes and purges the package, as root of a system that may be spoilt.
#
#   package.sh OLD.deb NEW.deb LIMITS CAPABILITIES
set -eu
old=$1 new=$2 limits=$3 capabilities=$4
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
config=/etc/clockwise/clockwise.toml
state=/var/lib/clockwise

fail() {
    echo "FAILED: $*"
    exit 1
}
# Runs a command that must end with a status, and say some words; what it said is in $said.
ends() {
    status=$1 words=$2
    shift 2
    said=$("$@" 2>&1 </dev/null) && got=0 || got=$?
    [ "$got" = "$status" ] || fail "$*: status $got: $said"
    case $said in *"$words"*) ;; *) fail "$*: no '$words': $said" ;; esac
}
by_clockwise() { runuser -u clockwise -- clockwise --config $config "$@"; }
serve() {
    mkdir -p /run/clockwise
    chown clockwise:clockwise /run/clockwise
    # shellcheck disable=SC2086
    prlimit $limits setpriv --reuid=clockwise --regid=clockwise --init-groups --no-new-privs "--inh-caps=$capabilities" \
        "--ambient-caps=$capabilities" "--bounding-set=$capabilities" \
        clockwise serve --config $config >"$state.log" 2>&1 &
    server=$!
    # A command waits for a server for 3 s, and a busy machine may need longer to start one.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        if clockwise status >/dev/null 2>&1; then return; fi
        kill -0 $server || break
    done
    fail "the server does not serve: $(cat $state.log)"
}
end() {
    kill $server
    wait $server || fail "the server did not end well: $(cat $state.log)"
}

# The index of all manual pages takes longer than everything else.
rm -f /var/lib/man-db/auto-update

echo '== install'
ends 0 'clockwise init' dpkg -i "$old"
clockwise --version
[ "$(stat -c '%U %a' $state)" = 'clockwise 750' ] || fail "the state folder is not the service's"
id -nG clockwise | grep -qw disk || fail 'the service may not use disks'
[ -L /etc/systemd/system/multi-user.target.wants/clockwise.service ] || fail 'the service is not enabled'
for file in man/man1/clockwise-serve.1.gz bash-completion/completions/clockwise zsh/vendor-completions/_clockwise \
    fish/vendor_completions.d/clockwise.fish doc/clockwise/copyright doc/clockwise/examples/clockwise.toml; do
    # A system may be told to install no documentation.
    [ -s "/usr/share/$file" ] || grep -qs path-exclude /etc/dpkg/dpkg.cfg.d/* || fail "no $file"
done
ends 2 'no disks' by_clockwise serve

echo '== serve'
printf '[[disk]]\npath = "%s/disk.img"\nkind = "file"\nsize = "64MiB"\n' $state >>$config
ends 0 'created pool' by_clockwise pool create --extent 1MiB
serve
ends 0 '' clockwise volume create films --size 1MiB
head -c 1048576 /dev/urandom >/tmp/film
ends 0 '' clockwise stream record --volume films --rate 1MB/s --block 256KiB --from /tmp/film

echo '== upgrade while the server runs'
ends 0 '' dpkg -i "$new"
kill -0 $server || fail 'the server was ended'
ends 0 'films' clockwise volume list
end
grep -q 'disk.img' $config || fail 'the configuration was replaced'
serve
ends 0 '' clockwise stream play --volume films --rate 1MB/s --block 256KiB --to /tmp/again
cmp /tmp/film /tmp/again
end
sum=$(sha256sum <$state/disk.img)

echo '== upgrade over a broken configuration'
echo '[nonsense' >>$config
ends 0 'is not valid' dpkg -i "$new"
ends 2 'error' by_clockwise serve --check

echo '== remove'
ends 0 '' dpkg -r clockwise
[ ! -e /usr/bin/clockwise ] || fail 'the program is still there'
[ -e $config ] || fail 'the configuration is gone'

echo '== purge'
ends 0 'are kept' dpkg -P clockwise
[ ! -e /etc/clockwise ] || fail 'the configuration is still there'
[ "$(sha256sum <$state/disk.img)" = "$sum" ] || fail 'the disk was changed'
id clockwise >/dev/null || fail 'the owner of the disk is gone'
[ ! -L /etc/systemd/system/multi-user.target.wants/clockwise.service ] || fail 'the service is still enabled'
echo '== done'
