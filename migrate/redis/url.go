package redis

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// errURL says what is wanted without what was given, which may hold a password.
var errURL = errors.New("the URL of the source is not of the form redis://[user:password@]host[:port][/database]" +
	" (rediss:// for TLS, unix://[user:password@]/path?db=N for a socket); reserved characters of a password are written as %XX")

// Times of one exchange with the server. A server may be busy for a while with
// the command of somebody else.
const (
	dialTimeout = 5 * time.Second
	ioTimeout   = 60 * time.Second
)

// parseURL returns how to connect and how people are told where to.
func parseURL(text string, db int, roots *x509.CertPool) (*goredis.Options, string, error) {
	u, err := url.Parse(text)
	if err != nil || !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) {
		return nil, "", errURL
	}
	o, err := goredis.ParseURL(text)
	if err != nil {
		return nil, "", errURL
	}
	if db >= 0 {
		o.DB = db
	}
	// One connection, the oldest protocol, no chatter of the library's own:
	// what is sent is what this package sends.
	o.Protocol = 2
	o.DisableIdentity = true
	o.PoolSize, o.MaxActiveConns, o.MinIdleConns = 1, 1, 0
	o.MaxRetries, o.DialerRetries = -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, ioTimeout, ioTimeout, ioTimeout
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o.TLSConfig != nil {
		o.TLSConfig.MinVersion = max(o.TLSConfig.MinVersion, tls.VersionTLS12)
		o.TLSConfig.RootCAs = roots
	}
	where := &url.URL{Scheme: u.Scheme, Host: o.Addr, Path: "/" + strconv.Itoa(o.DB)}
	if u.Scheme == "unix" {
		where = &url.URL{Scheme: u.Scheme, Path: o.Addr, RawQuery: "db=" + strconv.Itoa(o.DB)}
	}
	return o, where.String(), nil
}

// identity names the dataset: server, database and filters.
func (s *Source) identity() string {
	id := s.label
	if s.opts.Match != "" {
		id += fmt.Sprintf(" match %q", s.opts.Match)
	}
	if s.types != nil {
		id += " types " + strings.Join(s.typeNames(), ",")
	}
	return id
}

func (s *Source) typeNames() []string {
	names := make([]string, 0, len(s.types))
	for t := range s.types {
		names = append(names, t)
	}
	slices.Sort(names)
	return names
}
