#!/bin/sh
# After the files were removed. The data and their user always stay: they cannot be brought back.
#   deb: remove, purge, upgrade    rpm: 0 for a removal, 1 for an upgrade    apk: the version
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
case "$1" in
upgrade | failed-upgrade | abort-install | abort-upgrade | disappear | 1) exit 0 ;;
esac
if [ -n "$(ls -A /var/lib/keygate 2>/dev/null)" ]; then
	delete=userdel
	command -v userdel >/dev/null || delete=deluser # Alpine
	echo "The data in /var/lib/keygate were kept. To remove them for ever: rm -r /var/lib/keygate && $delete keygate"
fi
