#!/bin/sh
# After an upgrade of the apk package: restarts the service if it runs.
set -e
if command -v rc-service >/dev/null && rc-service --quiet keygate status >/dev/null 2>&1; then
	rc-service keygate restart
fi
