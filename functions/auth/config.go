package auth

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/latticekv/lattice/core/clock"
)

// KeysVariable is the environment variable with keys, as they stand in a keys
// file; a semicolon may end a line.
const KeysVariable = "LATTICE_AUTH_KEYS"

// InsecureVariable lets a service that others can reach start without
// credentials.
const InsecureVariable = "LATTICE_INSECURE_NO_AUTH"

// Config says which credentials there are. The tags are the flags, environment
// variables, defaults and help texts of every program.
type Config struct {
	// KeysFile holds keys, a line each.
	KeysFile string `name:"auth-keys-file" env:"LATTICE_AUTH_KEYS_FILE" placeholder:"FILE" help:"API keys, hashed, a line each as lattice keys new prints it. It is read again when it changes."`
	// Keys likewise.
	Keys string `kong:"-" env:"LATTICE_AUTH_KEYS"`
	// JWTIssuer, JWTAudience and JWKSURL are given all or none.
	JWTIssuer   string `name:"auth-jwt-issuer" env:"LATTICE_AUTH_JWT_ISSUER" placeholder:"ISS" help:"Accept JSON Web Tokens of this issuer (claim iss)."`
	JWTAudience string `name:"auth-jwt-audience" env:"LATTICE_AUTH_JWT_AUDIENCE" placeholder:"AUD" help:"They must be for one of these audiences (claim aud; commas separate)."`
	JWKSURL     string `name:"auth-jwks-url" env:"LATTICE_AUTH_JWKS_URL" placeholder:"URL" help:"Where the keys of the issuer are published."`
	// JWTAlgorithms are some of Algorithms.
	JWTAlgorithms string `name:"auth-jwt-algorithms" env:"LATTICE_AUTH_JWT_ALGORITHMS" default:"RS256,ES256,EdDSA" placeholder:"LIST" help:"Signatures that are accepted. Default ${default}."`
	// JWTLeeway is the clock skew that is tolerated, at most MaxLeeway.
	JWTLeeway time.Duration `name:"auth-jwt-leeway" env:"LATTICE_AUTH_JWT_LEEWAY" default:"30s" placeholder:"DURATION" help:"Difference of clocks to tolerate. Default ${default}."`
	// JWTMaxAge is the longest time since a token was issued; 0 is any.
	JWTMaxAge time.Duration `name:"auth-jwt-max-age" env:"LATTICE_AUTH_JWT_MAX_AGE" default:"0s" placeholder:"DURATION" help:"Refuse tokens issued longer ago (claim iat), even if they have not expired. Default ${default}: do not."`
	// JWTRoleClaim, JWTRolePrefix and JWTTreesClaim say how claims become rights.
	JWTRoleClaim  string `name:"auth-jwt-role-claim" env:"LATTICE_AUTH_JWT_ROLE_CLAIM" default:"roles" placeholder:"CLAIM" help:"Claim with the roles reader, writer, admin or internal. Default ${default}."`
	JWTRolePrefix string `name:"auth-jwt-role-prefix" env:"LATTICE_AUTH_JWT_ROLE_PREFIX" placeholder:"TEXT" help:"What stands before these names in the claim, such as lattice."`
	JWTTreesClaim string `name:"auth-jwt-trees-claim" env:"LATTICE_AUTH_JWT_TREES_CLAIM" placeholder:"CLAIM" help:"Claim with the patterns of the trees a token is for; a token without it is for none. Unless set, tokens are for all trees."`
	// JWTRate, JWTBurst and JWTConcurrent are the Limits of each subject.
	JWTRate       float64 `name:"auth-jwt-rate" env:"LATTICE_AUTH_JWT_RATE" default:"0" placeholder:"NUMBER" help:"Requests a second of one subject and instance, over time. Default ${default}: no limit."`
	JWTBurst      int     `name:"auth-jwt-burst" env:"LATTICE_AUTH_JWT_BURST" default:"0" placeholder:"NUMBER" help:"Requests of one subject that may come at once. Default ${default}: as many as in a second."`
	JWTConcurrent int     `name:"auth-jwt-concurrent" env:"LATTICE_AUTH_JWT_CONCURRENT" default:"0" placeholder:"NUMBER" help:"Requests of one subject in work at once. Default ${default}: no limit."`
	// PublicMetrics opens /metrics.
	PublicMetrics bool `name:"auth-public-metrics" env:"LATTICE_AUTH_PUBLIC_METRICS" help:"Serve /metrics without a credential."`
	// InsecureNoAuth is the wish to go without.
	InsecureNoAuth bool `name:"insecure-no-auth" env:"LATTICE_INSECURE_NO_AUTH" help:"Serve without credentials where other machines can connect: whoever does may do everything."`
}

// MaxLeeway bounds the difference of clocks that can be tolerated.
const MaxLeeway = 5 * time.Minute

// FromEnv reads a configuration from the environment. The error joins every
// value that cannot be read.
func FromEnv(lookup func(string) (string, bool)) (Config, error) {
	c := Config{}
	var faults []error
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		text, ok := lookup(tag.Get("env"))
		if !ok || text == "" {
			text = tag.Get("default")
		}
		if text == "" {
			continue
		}
		if err := setField(v.Field(i), text); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", tag.Get("env"), err))
		}
	}
	return c, errors.Join(faults...)
}

func setField(v reflect.Value, text string) error {
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = text
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errors.New("is neither true nor false")
		}
		*p = b
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return errors.New("is no duration, such as 30s")
		}
		*p = d
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return errors.New("is no whole number")
		}
		*p = n
	case *float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return errors.New("is no number")
		}
		*p = f
	default:
		return fmt.Errorf("a %s cannot be set from text", v.Type())
	}
	return nil
}

// Configured reports whether there are credentials at all.
func (c *Config) Configured() bool {
	return c.KeysFile != "" || strings.TrimSpace(c.Keys) != "" || c.hasJWT()
}

func (c *Config) hasJWT() bool { return c.JWTIssuer != "" || c.JWTAudience != "" || c.JWKSURL != "" }

// Check returns every fault of the configuration, joined. It reads no file.
func (c *Config) Check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Configured() && c.InsecureNoAuth {
		fault("credentials are configured, and %s asks for none: which one is meant?", InsecureVariable)
	}
	if !c.hasJWT() {
		return errors.Join(faults...)
	}
	if c.JWTIssuer == "" || c.JWTAudience == "" || c.JWKSURL == "" {
		fault("the issuer of tokens, their audience and the address of its keys must be given together")
	} else if err := checkURL(c.JWKSURL); err != nil {
		fault("address of the issuer's keys: %w", err)
	}
	for _, alg := range split(c.JWTAlgorithms) {
		if !slices.Contains(Algorithms(), alg) {
			fault("algorithm %q is not one of %s", alg, strings.Join(Algorithms(), ", "))
		}
	}
	if len(split(c.JWTAlgorithms)) == 0 {
		fault("no algorithm is allowed")
	}
	if c.JWTLeeway < 0 || c.JWTLeeway > MaxLeeway {
		fault("a leeway of %s is not between 0 and %s", c.JWTLeeway, MaxLeeway)
	}
	if c.JWTMaxAge < 0 {
		fault("a largest age of %s is negative", c.JWTMaxAge)
	}
	if !claimName.MatchString(c.JWTRoleClaim) || c.JWTTreesClaim != "" && !claimName.MatchString(c.JWTTreesClaim) {
		fault("the name of a claim has 1 to 256 printable characters")
	}
	if err := c.jwtLimits().check(); err != nil {
		fault("limits of tokens: %w", err)
	}
	return errors.Join(faults...)
}

var claimName = regexp.MustCompile(`^[[:graph:]]{1,256}$`)

func (c *Config) jwtLimits() Limits { return Limits{c.JWTRate, c.JWTBurst, c.JWTConcurrent} }

// checkURL refuses an address at which somebody in between could put keys of
// their own: plain HTTP is for this machine alone.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return errors.New("it is no URL")
	case u.User != nil:
		return errors.New("it must not hold credentials")
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()):
		return nil
	}
	return errors.New("it must begin with https://")
}

func split(list string) []string {
	var items []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// New returns the Authenticator of a configuration, nil if it has no
// credentials. It reads the keys file, and connects to nobody. A nil logger is
// slog.Default.
func New(c Config, source clock.Source, logger *slog.Logger) (*Authenticator, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	if !c.Configured() {
		return nil, nil
	}
	if logger == nil {
		logger = slog.Default()
	}
	keys, err := newKeyring(c.Keys, c.KeysFile, source, logger)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	a := &Authenticator{clock: source, keys: keys, limits: newLimiters(source), publicMetrics: c.PublicMetrics}
	if c.hasJWT() {
		a.jwt = c.newVerifier(source, logger)
	}
	return a, nil
}

func (c *Config) newVerifier(source clock.Source, logger *slog.Logger) *verifier {
	rules := []jwt.ParserOption{
		jwt.WithValidMethods(split(c.JWTAlgorithms)), jwt.WithIssuer(c.JWTIssuer), jwt.WithAudience(split(c.JWTAudience)...),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(c.JWTLeeway), jwt.WithStrictDecoding(),
		jwt.WithTimeFunc(func() time.Time { return source.Now().Time() }),
	}
	// Its own transport: what else the process calls must not share connections,
	// or wait for them.
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10}
	return &verifier{
		keys: newJWKSCache(c.JWKSURL, transport, source, logger), clock: source,
		parser: jwt.NewParser(rules...), claims: jwt.NewValidator(rules...), algs: split(c.JWTAlgorithms),
		leeway: c.JWTLeeway, maxAge: c.JWTMaxAge,
		roleClaim: c.JWTRoleClaim, rolePrefix: c.JWTRolePrefix, treesClaim: c.JWTTreesClaim, limits: c.jwtLimits(),
	}
}
