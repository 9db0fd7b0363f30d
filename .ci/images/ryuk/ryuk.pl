#!/usr/bin/perl
# Removes containers by label when every client has gone, and has stayed away for a while.
# A client connects to port 8080, says `label=NAME=VALUE` a line, and is answered with ACK.
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;

$| = 1;
my ($patience) = ($ENV{RYUK_RECONNECTION_TIMEOUT} // "10s") =~ /^(\d+)/;
my $first = 60;    # seconds to wait for the first client
my $server = IO::Socket::INET->new(LocalPort => 8080, Listen => 16, ReuseAddr => 1) or die "port 8080: $!\n";
my $select = IO::Select->new($server);
my (%labels, %rest);
my $alone_since = time;
print "Started! Waiting on port 8080\n";

while (1) {
    for my $socket ($select->can_read(1)) {
        if ($socket == $server) {
            my $client = $server->accept or next;
            $select->add($client);
            $rest{$client} = "";
            next;
        }
        my $count = sysread($socket, my $data, 4096);
        if (!$count) {
            $select->remove($socket);
            delete $rest{$socket};
            close $socket;
            $alone_since = time;
            next;
        }
        $rest{$socket} .= $data;
        while ($rest{$socket} =~ s/^([^\n]*?)\r?\n//) {
            my $line = $1;
            $labels{$line} = 1 if $line =~ /^label=/;
            syswrite($socket, "ACK\n");
        }
    }
    next if $select->count > 1;
    last if time - $alone_since >= (%labels ? $patience : $first);
}

for my $label (keys %labels) {
    my ($value) = $label =~ /^label=(.*)/;
    my $filter = "%7B%22label%22%3A%5B%22" . escaped($value) . "%22%5D%7D";
    my $listed = request("GET", "/containers/json?all=1&filters=$filter");
    while ($listed =~ /"Id":"([0-9a-f]{64})"/g) {
        print "Removing $1\n";
        request("DELETE", "/containers/$1?force=1&v=1");
    }
}

sub escaped {
    my ($text) = @_;
    $text =~ s/([^A-Za-z0-9._-])/sprintf "%%%02X", ord $1/ge;
    return $text;
}

sub request {
    my ($method, $path) = @_;
    my $docker = IO::Socket::UNIX->new(Peer => "/var/run/docker.sock") or die "no engine: $!\n";
    print $docker "$method $path HTTP/1.0\r\nHost: docker\r\n\r\n";
    local $/;
    return <$docker> // "";
}
