#!/bin/sh
# Before the files are removed: stops the service, but not for an upgrade.
#   deb: remove, upgrade    rpm: 0 for a removal, 1 for an upgrade    apk: the version
set -e
case "$1" in
upgrade | failed-upgrade | deconfigure | 1) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now keygate.socket keygate.service
elif command -v rc-service >/dev/null; then
	rc-service --ifstarted keygate stop
	rc-update --quiet --all del keygate || true
fi
