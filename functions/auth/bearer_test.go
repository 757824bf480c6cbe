package auth

import (
	"errors"
	"strings"
	"testing"
)

func TestAuthorizationHeader(t *testing.T) {
	long := strings.Repeat("a", maxTokenBytes)
	cases := map[string]struct {
		header []string
		token  string
		code   string
	}{
		"a token":                {[]string{"Bearer abc.DEF-123_~+/=="}, "abc.DEF-123_~+/==", ""},
		"scheme in small":        {[]string{"bearer abc"}, "abc", ""},
		"scheme in capitals":     {[]string{"BEARER abc"}, "abc", ""},
		"several blanks":         {[]string{"Bearer   abc  "}, "abc", ""},
		"the longest token":      {[]string{"Bearer " + long}, long, ""},
		"nothing":                {nil, "", ""},
		"empty":                  {[]string{""}, "", ""},
		"another scheme":         {[]string{"Basic dXNlcjpwYXNz"}, "", ""},
		"a scheme that begins":   {[]string{"Bearers abc"}, "", ""},
		"a bare token":           {[]string{"abc"}, "", ""},
		"scheme alone":           {[]string{"Bearer"}, "", invalidRequest},
		"scheme and a blank":     {[]string{"Bearer "}, "", invalidRequest},
		"a tab":                  {[]string{"Bearer\tabc"}, "", ""},
		"two headers":            {[]string{"Bearer abc", "Bearer abc"}, "", invalidRequest},
		"two schemes":            {[]string{"Basic abc", "Bearer abc"}, "", invalidRequest},
		"two tokens":             {[]string{"Bearer abc def"}, "", invalidRequest},
		"two tokens of a proxy":  {[]string{"Bearer abc, Bearer def"}, "", invalidRequest},
		"joined without a blank": {[]string{"Bearer abc,def"}, "", invalidRequest},
		"quotes":                 {[]string{`Bearer "abc"`}, "", invalidRequest},
		"line break":             {[]string{"Bearer abc\r\nX-Role: admin"}, "", invalidRequest},
		"a zero byte":            {[]string{"Bearer abc\x00"}, "", invalidRequest},
		"not ASCII":              {[]string{"Bearer abcé"}, "", invalidRequest},
		"padding inside":         {[]string{"Bearer ab=c"}, "", invalidRequest},
		"percent":                {[]string{"Bearer ab%20c"}, "", invalidRequest},
		"too long":               {[]string{"Bearer " + long + "a"}, "", invalidToken},
	}
	for name, c := range cases {
		token, fault := bearerToken(c.header)
		if token != c.token || (fault == nil) != (c.token != "") || fault != nil && (fault.Code != c.code || fault.Reason == "" || !errors.Is(fault, ErrUnauthenticated)) {
			t.Errorf("%s: %.20q, %+v", name, token, fault)
		}
	}
}

func FuzzAuthorizationHeader(f *testing.F) {
	for _, seed := range []string{"Bearer abc", "bearer  a.b.c ", "Basic x", "Bearer", "", "Bearer a,b", "Bearer a\r\nb", "Bearer =", "Bearer a=="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		token, fault := bearerToken([]string{header})
		if (token == "") != (fault != nil) {
			t.Fatalf("%q and %v", token, fault)
		}
		if fault != nil {
			if token != "" || len(header) > 16 && strings.Contains(fault.Error(), header) {
				t.Fatalf("the fault quotes the header: %v", fault)
			}
			return
		}
		if len(token) > maxTokenBytes || !tokenForm.MatchString(token) || !strings.HasSuffix(strings.TrimSpace(header), token) {
			t.Fatalf("token %q of %q", token, header)
		}
		if _, two := bearerToken([]string{header, header}); two == nil {
			t.Fatal("two headers are accepted")
		}
	})
}
