package hostile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/latticekv/lattice/functions/auth/authtest"
)

const (
	unauthenticated = "unauthenticated"
	denied          = "authorization_denied"
	invalid         = "invalid_argument"
	nowhere         = "route_not_found"
)

// write is the request that an accepted token would make a change with.
const write = "PUT /v1/trees/orders-1/keys/hostile"

// tokenAttacks are the credentials that are none.
func tokenAttacks(w *world) []attack {
	key, other := w.keys["writer orders*"], w.keys["admin *"]
	refused := func(name, token string) attack {
		return attack{name: name, raw: request(write, "x", "Authorization: Bearer "+token), status: 401, code: unauthenticated, secrets: []string{token}}
	}
	header := func(name string, headers ...string) attack {
		return attack{name: name, raw: request(write, "x", headers...), status: 401, code: unauthenticated, secrets: []string{key, other}}
	}
	notHTTP := func(name string, headers ...string) attack {
		return attack{name: name, raw: request(write, "x", headers...), status: 400}
	}
	line := func(name, line string, status int, code string, headers ...string) attack {
		return attack{name: name, raw: request(line, "", headers...), status: status, code: code, secrets: []string{key}}
	}
	return []attack{
		header("no credential"), header("an empty one", "Authorization:"), header("a scheme alone", "Authorization: Bearer"), header("a scheme and blanks", "Authorization: Bearer      "),
		header("twice", "Authorization: Bearer "+key, "Authorization: Bearer "+key), header("twice, the second is better", "Authorization: Bearer "+key, "Authorization: Bearer "+other),
		header("twice in other spelling", "Authorization: Bearer "+key, "aUTHORIZATION: Bearer "+key), header("Basic", "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("admin:"+key))),
		header("Negotiate", "Authorization: Negotiate YII="), header("AWS4", "Authorization: AWS4-HMAC-SHA256 Credential=a/b/c, Signature=d"), header("SharedKey of the storage", "Authorization: SharedKey devstoreaccount1:c2ln"),
		header("a key without a scheme", "Authorization: "+key), header("a tab for the blank", "Authorization: Bearer\t"+key), header("two tokens", "Authorization: Bearer "+key+" "+other),
		header("joined by a comma", "Authorization: Bearer "+key+",Bearer "+other), header("quoted", `Authorization: Bearer "`+key+`"`), header("as a parameter", "Authorization: Bearer token="+key),
		header("in the header of another service", "X-Api-Key: "+key, "X-Functions-Key: "+key, "Api-Key: "+key), header("for a proxy", "Proxy-Authorization: Bearer "+key),
		header("in a cookie", "Cookie: Authorization=Bearer "+key+"; token="+key), header("underscored", "Author_ization: Bearer "+key),
		header("what a trusted proxy would say", "X-Forwarded-User: admin", "X-Forwarded-Access-Token: "+key, "X-Ms-Client-Principal-Name: admin", "X-Ms-Client-Principal: eyJyb2xlcyI6ImFkbWluIn0="),
		header("from this very machine, it says", "X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1", "X-Real-Ip: 127.0.0.1"),
		notHTTP("a zero byte in it", "Authorization: Bearer "+key+"\x00"), notHTTP("a bare return in it", "Authorization: Bearer x\rAuthorization: Bearer "+key),
		notHTTP("a blank before the colon", "Authorization : Bearer "+key), notHTTP("a blank in the name", "Auth orization: Bearer "+key), notHTTP("no colon", "Authorization Bearer "+key),
		notHTTP("bytes that are no name", "Authoriz\x80tion: Bearer "+key),

		refused("a key cut", key[:len(key)-1]), refused("a key with a byte more", key+"A"), refused("a key in capitals", strings.ToUpper(key)), refused("a key without its prefix", strings.TrimPrefix(key, "lattice_")),
		refused("two keys in one", key+other), refused("the last bit of a key", key[:len(key)-1]+string(key[len(key)-1]^1)), refused("an expired key", w.keys["expired *"]), refused("a key with padding", key+"=="),
		refused("the name of a key", "k0"), refused("the internal token where it opens nothing", internalToken), refused("the internal token, cut", internalToken[:len(internalToken)-1]),
		refused("10,000 bytes", strings.Repeat("A", 10_000)), refused("undefined", "undefined"), refused("a star", "~"), refused("dots alone", ".."), refused("half a token", "a.b"), refused("four parts", "a.b.c.d"),
		refused("an encrypted one", "e30.e30.e30.e30.e30"),
		header("a wide letter", "Authorization: Bearer "+key[:len(key)-1]+"Ａ"), header("a percent sign", "Authorization: Bearer %6Cattice_"+key[8:]), header("a byte that is no text", "Authorization: Bearer "+key+"\xff"),
		line("a token in the query", "GET /v1/trees?access_token="+key, 401, unauthenticated), line("a token in the query, and one in its place", "GET /v1/trees?access_token="+key, 400, invalid, "Authorization: Bearer "+key),
		line("the code of a function in the query", "GET /v1/trees?code="+key, 401, unauthenticated), line("a token before the host", "GET http://user:"+key+"@lattice.example/v1/trees", 401, unauthenticated),
	}
}

// roleAttacks are good credentials in the wrong place.
func roleAttacks(w *world) []attack {
	as := func(name, key, line, body string, headers ...string) attack {
		return attack{name: name, raw: request(line, body, append(headers, w.bearer(key))...), status: 403, code: denied, secrets: []string{w.keys[key]}}
	}
	const jsonType = "Content-Type: application/json"
	batch := `{"operations":[{"op":"set","key":"hostile","text":"x"}]}`
	return []attack{
		as("a reader writes", "reader orders*", write, "x"), as("a reader deletes", "reader orders*", "DELETE /v1/trees/orders-1/keys/a", ""), as("a reader deletes all", "reader orders*", "DELETE /v1/trees/orders-1/entries?all=true", ""),
		as("a reader writes a batch", "reader orders*", "POST /v1/trees/orders-1/batch", batch, jsonType), as("a reader loads", "reader orders*", "POST /v1/trees/orders-new/bulk-load", `{"entries":[]}`, jsonType),
		as("a reader opens a cursor that deletes", "reader orders*", "POST /v1/trees/orders-1/cursors", `{"kind":"delete-range","prefix":"a"}`, jsonType),
		as("a reader turns a cursor that deletes", "reader orders*", "POST /v1/trees/orders-1/cursors/"+w.stolen.deleting+"/next", `{}`, jsonType),
		as("a reader makes a tree", "reader orders*", "PUT /v1/trees/orders-new", ""), as("a writer makes a tree with settings", "writer orders*", "PUT /v1/trees/orders-new", `{"shardCount":9}`, jsonType),
		as("a writer deletes a tree", "writer orders*", "DELETE /v1/trees/orders-1", ""), as("a writer purges", "writer orders*", "POST /v1/trees/orders-1/purge", ""), as("a writer recovers", "writer orders*", "POST /v1/trees/orders-1/recover", ""),
		as("a writer reshards", "writer orders*", "POST /v1/trees/orders-1/reshard", `{"shardCount":64}`, jsonType), as("a writer lifts a cap", "writer orders*", "PATCH /v1/trees/orders-1", `{"options":{"MaxLiveKeys":0}}`, jsonType),
		as("a writer ticks", "writer orders*", "POST /internal/timers/collect", ""), as("an administrator of some trees ticks", "admin orders*", "POST /internal/timers/collect", ""), as("an administrator ticks", "admin *", "POST /internal/timers/checkpoint", ""),
		as("an internal key reads", "internal", "GET /v1/trees/orders-1/keys/a", ""), as("an internal key writes", "internal", write, "x"), as("an internal key lists", "internal", "GET /v1/trees", ""),
		as("an administrator of some trees sees the metrics of all", "admin orders*", "GET /metrics", ""), as("an administrator of some trees sees the splits of all", "admin orders*", "GET /v1/cluster/split-activity", ""),
		as("a foreign tree", "writer orders*", "PUT /v1/trees/people/keys/hostile", "x"), as("a foreign tree, read", "reader orders*", "GET /v1/trees/people/keys/a", ""), as("a foreign tree that there is not", "reader orders*", "GET /v1/trees/nobody/keys/a", ""),
		as("a foreign tree, deleted", "writer orders*", "GET /v1/trees/gone/keys/a", ""), as("a foreign tree, by HEAD", "reader orders*", "HEAD /v1/trees/people/keys/a", ""), as("a foreign tree is made", "admin orders*", "PUT /v1/trees/people-2", ""),
		as("a foreign tree is purged", "admin orders*", "POST /v1/trees/gone/purge", ""), as("a foreign tree in other case", "writer orders*", "PUT /v1/trees/Orders/keys/hostile", "x"), as("capitals", "writer orders*", "PUT /v1/trees/ORDERS-1/keys/hostile", "x"),
		as("the own name behind another", "writer orders*", "PUT /v1/trees/my-orders-1/keys/hostile", "x"), as("one letter less", "writer orders*", "PUT /v1/trees/order/keys/hostile", "x"), as("the name and more", "writer orders-1", "PUT /v1/trees/orders-10/keys/hostile", "x"),
		as("a letter encoded", "writer orders*", "PUT /v1/trees/%70eople/keys/hostile", "x"), as("by the alias", "writer orders*", "PUT /v1/trees/people/key?key=hostile", "x"), as("a batch in a foreign tree", "writer orders*", "POST /v1/trees/people/batch", batch, jsonType),
		as("many keys of a foreign tree", "reader orders*", "POST /v1/trees/people/batch-get", `{"keys":["a"]}`, jsonType), as("a stream of a foreign tree", "reader orders*", "GET /v1/trees/people/entries", "", "Accept: application/x-ndjson"),
		as("the count of a foreign tree", "reader orders*", "GET /v1/trees/people/count", ""), as("diagnostics of a foreign tree", "reader orders*", "GET /v1/trees/people/diagnostics", ""), as("the shard map of a foreign tree", "reader orders*", "GET /v1/trees/people/shard-map", ""),
		as("the loads of a foreign tree", "reader orders*", "GET /v1/trees/people/bulk-loads/first", ""), as("a cursor on a foreign tree", "reader orders*", "POST /v1/trees/people/cursors", `{"kind":"keys"}`, jsonType),
		as("a foreign cursor where it belongs", "writer orders*", "POST /v1/trees/people/cursors/"+w.stolen.cursor+"/next", `{}`, jsonType), as("a foreign cursor is closed", "writer orders*", "DELETE /v1/trees/people/cursors/"+w.stolen.cursor, ""),
		as("a tree of the system", "admin *", "GET /v1/trees/_system", ""), as("a tree of the system is written", "admin *", "PUT /v1/trees/_registry/keys/hostile", "x"), as("a tree of the system, encoded", "admin *", "PUT /v1/trees/%5Fregistry/keys/hostile", "x"),
	}
}

// claims are right but for the changes; nil takes one out.
func claims(changes map[string]any) map[string]any {
	now := time.Now().Unix()
	all := map[string]any{"iss": issuerName, "aud": audience, "sub": "mallory", "roles": "writer", "trees": "orders*", "iat": now, "exp": now + 600}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return all
}

func segment(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of plain values
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// pemOf is a public key as an attacker would take it for a shared secret.
func pemOf(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// forgeries are tokens that some verifier somewhere has accepted.
func forgeries(w *world) []attack {
	t, now := w.t, time.Now().Unix()
	admin := claims(map[string]any{"roles": "admin", "trees": "*"})
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public := authtest.RSA(t).Public()
	refused := func(name, token string) attack {
		return attack{name: name, raw: request(write, "x", "Authorization: Bearer "+token), status: 401, code: unauthenticated, secrets: []string{token}}
	}
	signed := func(name string, changes map[string]any, header ...map[string]any) attack {
		return refused(name, w.issuer.Sign(t, "rsa", claims(changes), header...))
	}
	forged := func(name string, key *rsa.PrivateKey, header map[string]any) attack {
		return refused(name, authtest.SignWith(t, jwt.SigningMethodRS256, key, "rsa", admin, header))
	}
	good := w.issuer.Sign(t, "rsa", claims(nil))
	parts := strings.Split(good, ".")
	var all []attack
	for _, alg := range []string{"none", "None", "NONE", "nOnE", "none ", ""} {
		all = append(all, refused("alg "+alg+".", segment(map[string]any{"alg": alg, "typ": "JWT", "kid": "rsa"})+"."+segment(admin)+"."))
	}
	for _, alg := range []string{"HS256", "HS384", "HS512"} {
		method := jwt.GetSigningMethod(alg)
		all = append(all, refused(alg+" with the public key", authtest.SignWith(t, method, pemOf(t, public), "rsa", admin)))
	}
	jwk := authtest.JWK(own.Public())
	nested := segment(map[string]any{"alg": "RS256", "cty": "JWT", "kid": "rsa"}) + "." + base64.RawURLEncoding.EncodeToString([]byte(good)) + "." + parts[2]
	return append(all,
		refused("alg none with the signature of a good one", segment(map[string]any{"alg": "none", "kid": "rsa"})+"."+parts[1]+"."+parts[2]),
		refused("HS256 with the key set", authtest.SignWith(t, jwt.SigningMethodHS256, w.issuer.Set(), "rsa", admin)), refused("HS256 with nothing", authtest.SignWith(t, jwt.SigningMethodHS256, []byte{}, "rsa", admin)),
		refused("ES256 under the id of an RSA key", authtest.SignWith(t, jwt.SigningMethodES256, curve, "rsa", admin)), refused("RS256 under the id of a curve", authtest.SignWith(t, jwt.SigningMethodRS256, own, "ec", admin)),
		refused("PS256, which is not allowed", authtest.SignWith(t, jwt.SigningMethodPS256, authtest.RSA(t), "rsa", admin)), refused("RS512, which is not allowed", authtest.SignWith(t, jwt.SigningMethodRS512, authtest.RSA(t), "rsa", admin)),
		refused("ES256 with a signature of zeros", segment(map[string]any{"alg": "ES256", "kid": "ec"})+"."+segment(admin)+"."+base64.RawURLEncoding.EncodeToString(make([]byte, 64))),
		refused("an algorithm that there is not", segment(map[string]any{"alg": "RS256K", "kid": "rsa"})+"."+parts[1]+"."+parts[2]), refused("an algorithm that is a list", segment(map[string]any{"alg": []string{"RS256"}, "kid": "rsa"})+"."+parts[1]+"."+parts[2]),
		forged("signed by nobody we know", own, nil), forged("with the key inside", own, map[string]any{"jwk": jwk}), forged("with the address of a key set", own, map[string]any{"jku": "http://127.0.0.1:1/keys"}),
		forged("with the address of a certificate", own, map[string]any{"x5u": "http://127.0.0.1:1/cert"}), forged("with a certificate inside", own, map[string]any{"x5c": []string{"MIIB"}}),
		forged("a key id that is a path", own, map[string]any{"kid": "../../../../dev/null"}), forged("a key id that is SQL", own, map[string]any{"kid": "x' UNION SELECT 'key"}), forged("a key id that is an address", own, map[string]any{"kid": "http://127.0.0.1:1/k"}),
		forged("no key id", own, map[string]any{"kid": nil}), forged("a key id that is a number", own, map[string]any{"kid": 1}), forged("a key id with a zero byte", own, map[string]any{"kid": "rsa\x00"}), forged("a key id without end", own, map[string]any{"kid": strings.Repeat("k", 3000)}),
		signed("another issuer", map[string]any{"iss": "https://issuer.example.evil"}), signed("the issuer and a slash", map[string]any{"iss": issuerName + "/"}), signed("no issuer", map[string]any{"iss": nil}), signed("issuers", map[string]any{"iss": []string{issuerName}}),
		signed("another audience", map[string]any{"aud": "lattice-test"}), signed("no audience", map[string]any{"aud": nil}), signed("other audiences", map[string]any{"aud": []string{"a", "b"}}), signed("an audience in other case", map[string]any{"aud": "Lattice"}),
		signed("expired", map[string]any{"exp": now - 120}), signed("no expiry", map[string]any{"exp": nil}), signed("an expiry that is text", map[string]any{"exp": "9999999999"}), signed("an expiry below zero", map[string]any{"exp": -1}),
		signed("not valid yet", map[string]any{"nbf": now + 3600}), signed("issued in the future", map[string]any{"iat": now + 3600}), signed("issued long ago", map[string]any{"iat": now - 7200}), signed("no time of issue", map[string]any{"iat": nil}),
		signed("a critical extension", nil, map[string]any{"crit": []string{"b64"}, "b64": false}), signed("a critical nothing", nil, map[string]any{"crit": []string{}}),
		refused("claims replaced", parts[0]+"."+segment(admin)+"."+parts[2]), refused("a header replaced", segment(map[string]any{"alg": "RS256", "kid": "ec"})+"."+parts[1]+"."+parts[2]), refused("the signature of another token", parts[0]+"."+parts[1]+"."+strings.Split(w.issuer.Sign(t, "rsa", admin), ".")[2]),
		refused("no signature", parts[0]+"."+parts[1]+"."), refused("a signature cut", good[:len(good)-4]), refused("a signature with padding", good+"="), refused("a token in a token", nested), refused("a token and a dot", good+"."), refused("parts in other order", parts[1]+"."+parts[0]+"."+parts[2]),
		refused("claims twice, the second unsigned", parts[0]+"."+base64.RawURLEncoding.EncodeToString([]byte(`{"roles":"writer","roles":"admin","exp":9999999999}`))+"."+parts[2]),
		refused("claims that are no object", parts[0]+"."+base64.RawURLEncoding.EncodeToString([]byte(`[]`))+"."+parts[2]), refused("claims without end", parts[0]+"."+strings.Repeat("A", 7000)+"."+parts[2]),
		refused("claims nested without end", parts[0]+"."+base64.RawURLEncoding.EncodeToString([]byte(`{"a":`+strings.Repeat("[", 4000)))+"."+parts[2]),
	)
}

// escalations are good tokens of an issuer that say more than they should.
func escalations(w *world) []attack {
	t := w.t
	as := func(name string, changes map[string]any, line string) attack {
		token := w.issuer.Sign(t, "rsa", claims(changes))
		return attack{name: name, raw: request(line, "x", "Authorization: Bearer "+token), status: 403, code: denied, secrets: []string{token}}
	}
	const tick = "POST /internal/timers/collect"
	return []attack{
		as("internal and admin", map[string]any{"roles": []string{"internal", "admin"}, "trees": "*"}, tick), as("internal in capitals", map[string]any{"roles": "INTERNAL"}, tick), as("no role", map[string]any{"roles": nil}, write), as("a role that there is not", map[string]any{"roles": "root"}, write),
		as("a role by another claim", map[string]any{"roles": nil, "role": "admin", "scope": "admin", "groups": []string{"admin"}}, write), as("a role that is a number", map[string]any{"roles": 4}, write), as("a role in an object", map[string]any{"roles": map[string]any{"admin": true}}, write),
		as("roles, one of which is none", map[string]any{"roles": []any{"admin", 1}}, write), as("a role with a byte more", map[string]any{"roles": "writer\x00"}, write), as("the role none", map[string]any{"roles": "none"}, write),
		as("no trees", map[string]any{"trees": nil}, write), as("trees that are no patterns", map[string]any{"trees": "orders[1-9]*"}, write), as("another tree", map[string]any{"trees": "people"}, write), as("a pattern of a path", map[string]any{"trees": "orders-1/../*"}, write),
		as("trees without end", map[string]any{"trees": strings.Split(strings.Repeat("orders-1,", 65)+"orders-1", ",")}, write), as("no trees, reading", map[string]any{"trees": ""}, "GET /v1/trees/orders-1/keys/a"),
	}
}
