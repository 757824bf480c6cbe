package auth

import (
	"errors"
	"net/http"
	"testing"
)

func TestInternalCheck(t *testing.T) {
	const token = "s3cret"
	tests := map[string]struct {
		guard  Internal
		header []string
		want   error
	}{
		"right token is admitted":             {NewInternal(token), []string{"Bearer s3cret"}, nil},
		"scheme is case-insensitive":          {NewInternal(token), []string{"bearer  s3cret "}, nil},
		"wrong token is refused":              {NewInternal(token), []string{"Bearer s3cres"}, ErrUnauthenticated},
		"prefix of the token is refused":      {NewInternal(token), []string{"Bearer s3cre"}, ErrUnauthenticated},
		"no header is refused":                {NewInternal(token), nil, ErrUnauthenticated},
		"empty token is refused":              {NewInternal(token), []string{"Bearer "}, ErrUnauthenticated},
		"bare token is refused":               {NewInternal(token), []string{"s3cret"}, ErrUnauthenticated},
		"other scheme is refused":             {NewInternal(token), []string{"Basic s3cret"}, ErrUnauthenticated},
		"two headers are refused":             {NewInternal(token), []string{"Bearer s3cret", "Bearer s3cret"}, ErrUnauthenticated},
		"no token configured denies everyone": {NewInternal(""), []string{"Bearer s3cret"}, ErrDenied},
		"no token configured, empty sent":     {NewInternal(""), []string{"Bearer "}, ErrDenied},
		"zero value denies everyone":          {Internal{}, nil, ErrDenied},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			for _, v := range tt.header {
				h.Add("Authorization", v)
			}
			if err := tt.guard.Check(h); !errors.Is(err, tt.want) {
				t.Errorf("Check = %v, want %v", err, tt.want)
			}
		})
	}
}
