#!/bin/sh
set -eu
case "$1" in -*) set -- nats-server "$@" ;; esac
exec "$@"
