#!/bin/sh
# Without a configuration file the server would talk to its own loopback only.
set -eu
case "$1" in -*) set -- valkey-server "$@" ;; esac
[ "$1" != valkey-server ] || set -- "$@" --protected-mode no
if [ "$(id -u)" = 0 ]; then
  chown -R valkey /data
  exec setpriv --reuid valkey --regid valkey --init-groups "$@"
fi
exec "$@"
