package hostile

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/aws/aws-lambda-go/events"

	"github.com/latticekv/lattice/functions/auth"
	"github.com/latticekv/lattice/tests/azurite"
	"github.com/latticekv/lattice/tests/running"
)

// Secrets that look like nothing that could be found by its form.
const (
	wrongKey   = "d3Jvbmcta2V5LW9mLXRoZS1hY2NvdW50LTAxMjM0NTY="
	wrongSig   = "d3Jvbmctc2lnbmF0dXJlLTAxMjM0NTY3ODk="
	otelSecret = "otel-secret-0123456789"
	urlSecret  = "password-in-an-address-012"
)

// mishap is a situation in which programs have much to say about their secrets.
type mishap struct {
	name string
	env  []string
	// says is what the log of each program tells of it, so that it is known to have
	// happened.
	says string
	// token is the caller's; the administrator's key if it is empty.
	token string
}

// TestSecretsStayOutOfTheLogs lets each program fail in every way that has to do
// with what it was given in confidence, at the level debug. That nothing of it is
// in the output is looked after by package running when the programs end.
func TestSecretsStayOutOfTheLogs(t *testing.T) {
	store := azurite.Start(t)
	secret, line := adminKey(t)
	running.Secret(t, secret, wrongKey, wrongSig, otelSecret, urlSecret, valueMarker, keyMarker, internalToken)
	programs := []string{"cmd/local", "functions/azurefunc", "functions/awslambda"}
	for _, program := range programs {
		running.Build(t, program) // which takes a while
	}
	for _, m := range mishaps(t, store, secret, line) {
		for _, program := range programs {
			t.Run(m.name+" in "+program, func(t *testing.T) {
				t.Parallel()
				env := append([]string{"LATTICE_STORE=azure", "LATTICE_AUTH_KEYS=" + line, "LATTICE_INTERNAL_TOKEN=" + internalToken, "LATTICE_LOG_LEVEL=debug", "LATTICE_REQUEST_TIMEOUT=500ms", "LATTICE_ROUTING_RETRY_BUDGET=100ms", "LATTICE_TICK_BUDGET=300ms"}, m.env...)
				token := m.token
				if token == "" {
					token = secret
				}
				p := provoke(t, program, env, token)
				until(t, p, func() bool {
					select {
					case <-p.Exited():
						if !strings.Contains(p.Output(), m.says) {
							t.Fatalf("ended, and does not say %q:\n%s", m.says, p.Output())
						}
						return true
					default:
						return strings.Contains(p.Output(), m.says)
					}
				})
			})
		}
	}
}

func adminKey(t *testing.T) (secret, line string) {
	t.Helper()
	k := auth.Key{Name: "root", Role: auth.RoleAdmin}
	var err error
	if k.Trees, err = auth.ParsePatterns("*"); err != nil {
		t.Fatal(err)
	}
	if secret, line, err = auth.NewKey(k); err != nil {
		t.Fatal(err)
	}
	return secret, line
}

func mishaps(t *testing.T, store *azurite.Emulator, secret, line string) []mishap {
	t.Helper()
	good := "AZURE_STORAGE_CONNECTION_STRING=" + store.ConnectionString()
	account := func(fields string) string { return "AZURE_STORAGE_CONNECTION_STRING=" + fields }
	at := func(table, blob string) string { return ";TableEndpoint=" + table + ";BlobEndpoint=" + blob + ";" }
	nowhere := "http://" + closedPort(t) + "/devstoreaccount1"
	sas := "SharedAccessSignature=sv=2024-08-04&ss=bt&srt=sco&sp=rwdlacu&se=2099-01-01T00:00:00Z&sig=" + wrongSig
	busy := echoing(t, http.StatusServiceUnavailable, "ServerBusy")
	odd := echoing(t, http.StatusForbidden, "AuthenticationFailed")
	badKeys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(badKeys, []byte(secret+" admin * "+secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	corrupt := damaged(t, store, secret, line)
	return []mishap{
		{name: "a wrong account key", env: []string{account("AccountName=devstoreaccount1;AccountKey=" + wrongKey + at(store.TableURL(), store.BlobURL()))}, says: "403"},
		{name: "a wrong signature", env: []string{account(sas + at(store.TableURL(), store.BlobURL()))}, says: "403"},
		{name: "storage away, with a key", env: []string{account("AccountName=devstoreaccount1;AccountKey=" + wrongKey + at(nowhere, nowhere))}, says: "refused"},
		{name: "storage away, with a signature", env: []string{account(sas + at(nowhere, nowhere))}, says: "refused"},
		{name: "storage that repeats the request, busy", env: []string{account(sas + at(busy, busy))}, says: "503"},
		{name: "storage that repeats the request, refusing", env: []string{account(sas + at(odd, odd))}, says: "403"},
		{name: "an address with a password for the issuer", env: []string{good, "LATTICE_AUTH_JWT_ISSUER=i", "LATTICE_AUTH_JWT_AUDIENCE=a", "LATTICE_AUTH_JWKS_URL=https://user:" + urlSecret + "@issuer.example/keys"}, says: "must not hold credentials"},
		{name: "an address with a secret parameter for an issuer that is away", env: []string{good, "LATTICE_AUTH_JWT_ISSUER=i", "LATTICE_AUTH_JWT_AUDIENCE=a", "LATTICE_AUTH_JWKS_URL=http://" + closedPort(t) + "/keys?code=" + urlSecret}, says: "keys of the issuer were not fetched",
			token: segment(map[string]any{"alg": "RS256", "kid": "k"}) + "." + segment(map[string]any{"iss": "i", "aud": "a", "exp": time.Now().Unix() + 600}) + "." + base64.RawURLEncoding.EncodeToString([]byte(urlSecret))},
		{name: "a key where its name belongs", env: []string{good, "LATTICE_AUTH_KEYS=" + secret + " admin * " + secret}, says: "line 1"},
		{name: "a keys file with keys", env: []string{good, "LATTICE_AUTH_KEYS=", "LATTICE_AUTH_KEYS_FILE=" + badKeys}, says: "line 1"},
		{name: "a connection string that is none", env: []string{account("AccountKey=" + wrongKey + ";;x=" + wrongSig)}, says: "AZURE_STORAGE_CONNECTION_STRING"},
		{name: "telemetry away", env: []string{good, "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + closedPort(t), "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20" + otelSecret, "OTEL_METRIC_EXPORT_INTERVAL=500", "OTEL_BSP_SCHEDULE_DELAY=200", "OTEL_EXPORTER_OTLP_TIMEOUT=500"}, says: "refused"},
		{name: "a row that is damaged", env: []string{good, "LATTICE_TABLE_NAME=" + corrupt, "LATTICE_CONTAINER_NAME=" + corrupt}, says: "corrupt"},
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// echoing is a storage that refuses everything and repeats what it was asked, as
// debugging proxies do.
func echoing(t *testing.T, status int, code string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Ms-Error-Code", code)
		w.WriteHeader(status)
		fmt.Fprintf(w, "%s: %s %s with %s", code, r.Method, r.RequestURI, r.Header.Get("Authorization"))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/devstoreaccount1"
}

// damaged makes a storage in which the heads of a tree cannot be understood, and
// returns the name of its table and container.
func damaged(t *testing.T, store *azurite.Emulator, secret, line string) string {
	t.Helper()
	const name = "damaged"
	s := running.Start(t, []string{
		"LATTICE_STORE=azure", "AZURE_STORAGE_CONNECTION_STRING=" + store.ConnectionString(), "LATTICE_AUTH_KEYS=" + line,
		"LATTICE_TABLE_NAME=" + name, "LATTICE_CONTAINER_NAME=" + name,
	}, "--data-dir="+t.TempDir())
	got := call(t, strings.TrimPrefix(s.URL, "http://"), secret, "PUT", "/v1/trees/t/keys/"+keyMarker, "", valueMarker)
	if got.Status != http.StatusCreated {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	s.Kill()
	service, err := aztables.NewServiceClientFromConnectionString(store.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	table, spoilt := service.NewClient(name), 0
	w := &world{t: t, store: store}
	all := map[string]string{}
	w.rows(all, table, name)
	for id, row := range all {
		if !strings.HasSuffix(id, " head") {
			continue
		}
		var entity map[string]any
		if err := json.Unmarshal([]byte(row), &entity); err != nil {
			t.Fatal(err)
		}
		entity["P0"] = base64.StdEncoding.EncodeToString([]byte(valueMarker + strings.Repeat("?", int(entity["Len"].(float64)))[len(valueMarker):]))
		for k := range entity {
			if strings.HasPrefix(k, "odata.") || k == "Timestamp" {
				delete(entity, k)
			}
		}
		text, err := json.Marshal(entity)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := table.UpdateEntity(t.Context(), text, &aztables.UpdateEntityOptions{UpdateMode: aztables.UpdateModeReplace}); err != nil {
			t.Fatal(err)
		}
		spoilt++
	}
	if spoilt == 0 {
		t.Fatal("no head was found")
	}
	return name
}

// provoke starts a program and asks it for everything that needs the storage. It
// may end by itself.
func provoke(t *testing.T, program string, env []string, token string) *running.Process {
	t.Helper()
	var p *running.Process
	var err error
	ask := func(string, string) {}
	switch program {
	case "functions/awslambda":
		p, ask = provokeFunction(t, env, token)
	case "functions/azurefunc":
		address := closedPort(t)
		_, port, _ := net.SplitHostPort(address)
		if p, err = running.Run(t, append(env, "FUNCTIONS_CUSTOMHANDLER_PORT="+port), running.Build(t, program)); err != nil {
			t.Fatal(err)
		}
		ask = asker(t, address, token, p)
	default:
		if p, err = running.Run(t, env, running.Build(t, program), "--listen=127.0.0.1:0", "--data-dir="+t.TempDir()); err != nil {
			t.Fatal(err)
		}
		select {
		case url := <-p.Listening():
			ask = asker(t, strings.TrimPrefix(url, "http://"), token, p)
		case <-p.Exited():
		case <-time.After(time.Minute):
			t.Fatalf("neither listens nor ends:\n%s", p.Output())
		}
	}
	for _, line := range []string{"PUT /v1/trees/t/keys/" + keyMarker, "GET /v1/trees/t/keys/" + keyMarker, "GET /v1/trees", "GET /readyz", "POST /internal/timers/checkpoint"} {
		method, path, _ := strings.Cut(line, " ")
		ask(method, path)
	}
	return p
}

// asker sends requests, whatever becomes of them, while the program runs.
func asker(t *testing.T, address, token string, p *running.Process) func(method, path string) {
	client := &http.Client{Timeout: time.Minute}
	return func(method, path string) {
		t.Helper()
		if path == "/internal/timers/checkpoint" {
			token = internalToken
		}
		for {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(valueMarker))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+token)
			resp, err := client.Do(req)
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				return
			}
			select {
			case <-p.Exited():
				return
			case <-time.After(20 * time.Millisecond): // it does not listen yet
			}
		}
	}
}

func provokeFunction(t *testing.T, env []string, token string) (*running.Process, func(method, path string)) {
	t.Helper()
	api := &runtimeAPI{events: make(chan string), answers: make(chan string)}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	p, err := running.Run(t, append(env, "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(server.URL, "http://"), "AWS_LAMBDA_FUNCTION_TIMEOUT=60"), running.Build(t, "functions/awslambda"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p, func(method, path string) {
		if path == "/internal/timers/checkpoint" {
			token = internalToken
		}
		e := events.LambdaFunctionURLRequest{Version: "2.0", RawPath: path, Headers: map[string]string{"authorization": "Bearer " + token}, Body: valueMarker}
		e.RequestContext.HTTP.Method = method
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = api.invoke(t.Context(), string(text)) // it may have ended
		}()
		select {
		case <-done:
		case <-p.Exited():
		}
	}
}
