#!/bin/sh
# Before the files are unpacked: creates the user and the group that they belong to.
set -e
if ! getent passwd keygate >/dev/null 2>&1 && ! grep -q '^keygate:' /etc/passwd; then
	if command -v useradd >/dev/null; then
		useradd --system --user-group --home-dir /var/lib/keygate --no-create-home --shell /usr/sbin/nologin keygate
	else # Alpine
		addgroup -S keygate
		adduser -S -D -H -G keygate -h /var/lib/keygate -s /sbin/nologin keygate
	fi
fi
