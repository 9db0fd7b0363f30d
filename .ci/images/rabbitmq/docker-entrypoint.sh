#!/bin/bash
# RABBITMQ_DEFAULT_USER, RABBITMQ_DEFAULT_PASS and RABBITMQ_DEFAULT_VHOST are read by the server itself.
set -eu
if [[ $1 == rabbitmq* && $(id -u) == 0 ]]; then
  [ "$1" = rabbitmq-server ] && chown -R rabbitmq /var/lib/rabbitmq
  exec setpriv --reuid rabbitmq --regid rabbitmq --init-groups "$BASH_SOURCE" "$@"
fi
if [ -n "${RABBITMQ_ERLANG_COOKIE-}" ] && [ ! -e /var/lib/rabbitmq/.erlang.cookie ]; then
  (umask 077 && echo "$RABBITMQ_ERLANG_COOKIE" > /var/lib/rabbitmq/.erlang.cookie)
fi
exec "$@"
