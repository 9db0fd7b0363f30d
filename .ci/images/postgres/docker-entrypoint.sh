#!/bin/bash
# POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB as in the official image; trust on the container's own loopback.
set -eu
if [ "$(id -u)" = 0 ]; then
  chown -R postgres "$PGDATA"
  exec setpriv --reuid postgres --regid postgres --init-groups "$BASH_SOURCE" "$@"
fi
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
  [ -n "${POSTGRES_PASSWORD-}" ] || { echo "Error: POSTGRES_PASSWORD is not specified" >&2; exit 1; }
  user=${POSTGRES_USER:-postgres} name=${POSTGRES_DB:-${POSTGRES_USER:-postgres}}
  initdb --username "$user" --pwfile <(echo "$POSTGRES_PASSWORD") >/dev/null
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  if [ "$name" != postgres ]; then # while nobody can reach it from outside
    pg_ctl --options "-c listen_addresses=''" --wait start >/dev/null
    createdb --username "$user" "$name"
    pg_ctl --mode fast --wait stop >/dev/null
  fi
fi
[ "$1" != postgres ] || set -- "$@" -c "listen_addresses=*"
exec "$@"
