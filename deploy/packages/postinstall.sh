#!/bin/sh
# After the files were unpacked. An installation starts nothing. An upgrade restarts a service that runs: with
# keygate.socket, systemd keeps the port of the data plane open meanwhile.
#   deb: configure [VERSION BEFORE]    rpm: 1 for an installation, 2 for an upgrade    apk: the version
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
case "$1" in
configure) upgrade=$2 ;;
1) upgrade= ;;
2) upgrade=yes ;;
*) upgrade= ;; # apk calls postupgrade.sh for upgrades
esac
if [ -n "$upgrade" ]; then
	if [ -d /run/systemd/system ]; then
		systemctl try-restart keygate.service
	fi
elif [ -d /run/systemd/system ]; then
	echo "Start Keygate now and with the machine: systemctl enable --now keygate"
elif command -v rc-update >/dev/null; then
	echo "Start Keygate now and with the machine: rc-update add keygate && rc-service keygate start"
fi
