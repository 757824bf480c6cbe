package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	goredis "github.com/redis/go-redis/v9"

	"github.com/latticekv/lattice/migrate/source"
)

// reply returns what the server said, if err is an error of the server.
func reply(err error) (string, bool) {
	var r goredis.Error
	if err == nil || errors.Is(err, goredis.Nil) || !errors.As(err, &r) {
		return "", false
	}
	return r.Error(), true
}

func says(err error, starts ...string) bool {
	text, ok := reply(err)
	for _, s := range starts {
		if ok && strings.HasPrefix(text, s) {
			return true
		}
	}
	return false
}

// refused: the server does not know the command, or the user may not run it.
func refused(err error) bool {
	text, ok := reply(err)
	return ok && !says(err, "ERR SELECT") && (says(err, "NOPERM", "ERR unknown", "ERR This instance has cluster support disabled", "EXECABORT") ||
		strings.Contains(text, "not supported") || strings.Contains(text, "not allowed") || strings.Contains(text, "unknown command"))
}

// forbiddenKey: the user may run the command, but not on this key.
func forbiddenKey(err error) bool {
	text, ok := reply(err)
	return ok && strings.HasPrefix(text, "NOPERM") && strings.Contains(text, " key")
}

// moved: the slot of a key is, or is about to be, on another node.
func moved(err error) bool { return says(err, "MOVED ", "ASK ") }

// transient: it may work in a while.
func transient(err error) bool {
	if err == nil || isRestart(err) {
		return false
	}
	if _, ok := reply(err); ok {
		return says(err, "LOADING", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN", "BUSY ", "ERR max number of clients")
	}
	var record tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	var dns *net.DNSError
	var network net.Error
	switch {
	case errors.As(err, &record), errors.As(err, &cert), errors.As(err, &dns) && dns.IsNotFound:
		return false
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EACCES):
		return false // the socket of a unix:// URL
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, goredis.ErrPoolTimeout):
		return true
	}
	return errors.As(err, &network)
}

// explain is an error as one sentence with the way out. What it explains is not
// wrapped: callers would take a failure of the source's network for one of
// their own.
func (s *Source) explain(err error) error {
	var ended *source.EndedError
	if err == nil || isRestart(err) || errors.As(err, &ended) || errors.Is(err, errReply) {
		return err
	}
	if text, ok := reply(err); ok {
		return fmt.Errorf("%s: %s", s.label, sentence(text))
	}
	return fmt.Errorf("%s: %s", s.label, s.network(err))
}

// sentences by how the server's reply begins; the first that fits is taken.
var sentences = []struct{ start, text string }{
	{"NOAUTH", "the server wants a password: put it into the URL, redis://:password@host or redis://user:password@host"},
	{"WRONGPASS", "the server refuses the user name or the password of the URL"},
	{"ERR invalid password", "the server refuses the password of the URL"},
	{"ERR Client sent AUTH", "the server has no password, but the URL gives one: leave it out"},
	{"ERR AUTH", "the server has no password, or no users, but the URL gives one: leave it, or the user, out"},
	{"DENIED", "the server is in protected mode and answers its own machine only: set a password (requirepass), or run this command there"},
	{"LOADING", "the server is still loading its data into memory: wait until it is done, or give a longer time to retry"},
	{"MASTERDOWN", "this replica has lost its master and serves no stale data: read the master, or set replica-serve-stale-data to yes"},
	{"CLUSTERDOWN", "the cluster is down: it serves no keys until all slots are covered"},
	{"TRYAGAIN", "the cluster is moving slots: run again when that is done"},
	{"CROSSSLOT", "a proxy spreads keys over several servers and refuses transactions: give the address of each server instead"},
	{"BUSY", "the server is busy with a script: wait for it, or end it with SCRIPT KILL"},
	{"OOM", "the server is out of memory and refuses even to read: raise maxmemory, or read a replica"},
	{"ERR DB index", "the server has no database of that number: give one that exists"},
	{"ERR invalid DB index", "the server has no database of that number: give one that exists"},
	{"ERR SELECT is not allowed", "a cluster has database 0 only: leave the number out"},
	{"ERR max number of clients", "the server has as many clients as it allows: raise maxclients, or close some"},
	{"MISCONF", "the server cannot save its data and refuses commands: repair its disk first"},
}

func sentence(text string) string {
	for _, s := range sentences {
		if strings.HasPrefix(text, s.start) {
			return s.text
		}
	}
	switch {
	case strings.HasPrefix(text, "NOPERM") && strings.Contains(text, " key"):
		return "the user may not read all keys: grant it a pattern that covers them (ACL SETUSER name %R~*), or narrow the match"
	case strings.HasPrefix(text, "NOPERM"):
		return fmt.Sprintf("the user lacks a right (%s): grant it with ACL SETUSER name +@read +info +time +multi +exec +watch +unwatch +memory", clip(text))
	case strings.HasPrefix(strings.ToLower(text), "err unknown command"):
		return fmt.Sprintf("the server is too old, or a proxy forbids the command (%s): Redis 2.8 or newer is needed, asked directly", clip(text))
	}
	return "the server says: " + clip(text)
}

// network explains a failure of the connection.
func (s *Source) network(err error) string {
	var record tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	var host x509.HostnameError
	var op *net.OpError
	switch {
	case errors.As(err, &record):
		return "the server does not speak TLS on this port: use redis:// instead of rediss://, or its TLS port"
	case errors.As(err, &host):
		return fmt.Sprintf("the certificate is for another name (%v): use a name it holds", host)
	case errors.As(err, &cert):
		return fmt.Sprintf("its certificate is not trusted (%v): give the authority's certificate with --source-cacert", cert.Err)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Sprintf("cannot be reached (%v): is the server running, and is the address right?", op.Err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		if s.dial.TLSConfig != nil && !s.answered {
			return "the server does not answer in TLS: use redis:// instead of rediss://, or its TLS port"
		}
		return "the server does not answer in time: is it overloaded, or is something else at this address?"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.ErrUnexpectedEOF):
		hint := "is the server going down?"
		if s.dial.TLSConfig == nil {
			hint = "does the port want TLS (rediss://), or is the server going down?"
		}
		return "the server closed the connection: " + hint
	}
	return err.Error()
}

// clip bounds what is quoted of a server.
func clip(text string) string {
	const most = 200
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
