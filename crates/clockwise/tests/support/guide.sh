#!/bin/sh
# Runs the commands of the guide for the package, as root of a system that may be spoilt, and keeps the server until
# standard input ends.
#
#   guide.sh COMMANDS ROOM LIMITS CAPABILITIES
#
# COMMANDS is a file with a command in each line; ROOM a folder with room for a pool.
set -eu
commands=$1 room=$2 limits=$3 capabilities=$4
export DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin
# A new system has what the package depends on. Recommended packages would be fetched.
printf 'APT::Install-Recommends "false";\n' >/run/apt.conf
export APT_CONFIG=/run/apt.conf
rm -f /var/lib/man-db/auto-update

# There is no systemd: the unit's command starts with the unit's user, limits and capabilities.
cat >/usr/local/sbin/systemctl <<END
#!/bin/sh
[ "\$*" = 'start clockwise' ] || exit 0
mkdir -p /run/clockwise
chown clockwise:clockwise /run/clockwise
prlimit $limits setpriv --reuid=clockwise --regid=clockwise --init-groups --no-new-privs "--inh-caps=$capabilities" \\
    "--ambient-caps=$capabilities" "--bounding-set=$capabilities" \\
    clockwise serve --config /etc/clockwise/clockwise.toml >/run/clockwise.log 2>&1 &
echo \$! >/run/clockwise.pid
END
chmod 755 /usr/local/sbin/systemctl

while read -r command; do
    echo "== $command"
    begun=$(date +%s)
    sh -euc "$command" </dev/null || { echo "FAILED: $(cat /run/clockwise.log 2>/dev/null)"; exit 1; }
    echo "$(($(date +%s) - begun)) s"
    case $command in apt-get*)
        # All else is in memory.
        mount --bind "$room" /var/lib/clockwise
        chown clockwise:clockwise /var/lib/clockwise
        chmod 750 /var/lib/clockwise ;;
    esac
done <"$commands"
echo '== watch'
cat >/dev/null
server=$(cat /run/clockwise.pid)
kill "$server"
while kill -0 "$server" 2>/dev/null; do sleep 0.1; done
tail -n 3 /run/clockwise.log
echo '== done'
