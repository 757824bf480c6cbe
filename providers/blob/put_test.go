package blob

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/latticekv/lattice/core/store"
	"github.com/latticekv/lattice/providers/internal/azfake"
)

const (
	fakeKey    = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA=="
	fakeString = "AccountName=acc;AccountKey=" + fakeKey + ";BlobEndpoint=http://blobs.example/acc"
	someTag    = `"0x8D4BCC2E4835CD0"`

	// Small bounds, so that tests of blocks move few bytes.
	testSingle = 1000
	testBlock  = 500
)

// scripted opens a store over scripted answers.
func scripted(t *testing.T, script ...azfake.Answer) (*Store, *azfake.Service) {
	t.Helper()
	service := azfake.New(t, script...)
	s, err := New(t.Context(), Options{ConnectionString: fakeString, Container: "box", Lazy: true, Transport: service})
	if err != nil {
		t.Fatal(err)
	}
	s.single, s.block = testSingle, testBlock
	return s, service
}

func created() azfake.Answer {
	return azfake.Answer{Status: http.StatusCreated, Header: map[string]string{"ETag": someTag}}
}

func failure(status int, code string) azfake.Answer {
	return azfake.Answer{Status: status, Header: map[string]string{"x-ms-error-code": code}}
}

func wantOnly(t *testing.T, err, want error) {
	t.Helper()
	for _, s := range []error{
		store.ErrNotFound, store.ErrExists, store.ErrPrecondition, store.ErrThrottled, store.ErrUnavailable,
		store.ErrOutcomeUnknown, store.ErrTooLarge, store.ErrInvalid, store.ErrCorrupt,
	} {
		if errors.Is(err, s) != errors.Is(want, s) {
			t.Errorf("error %v: is %v: %v, want only %v", err, s, errors.Is(err, s), want)
		}
	}
}

func TestPutSendsItsCondition(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		cond                 store.PutCondition
		ifMatch, ifNoneMatch string
	}{
		{"Create", store.Create, "", "*"},
		{"IfMatch", store.IfMatch(someTag), someTag, ""},
		{"Always", store.Always, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, service := scripted(t, created())
			etag, err := s.Put(t.Context(), "dir/name", []byte("data"), tc.cond)
			if err != nil || etag != someTag {
				t.Fatalf("got %q, %v", etag, err)
			}
			seen := service.Seen()
			if len(seen) != 1 || seen[0].Method != "PUT" || seen[0].Body != "data" || !strings.HasPrefix(seen[0].URL, "http://blobs.example/acc/box/dir") {
				t.Fatalf("sent %+v", seen)
			}
			h := seen[0].Header
			if h.Get("If-Match") != tc.ifMatch || h.Get("If-None-Match") != tc.ifNoneMatch {
				t.Fatalf("conditions %q and %q", h.Get("If-Match"), h.Get("If-None-Match"))
			}
		})
	}
}

func TestPutOfMissingConditionIsNeverSent(t *testing.T) {
	s, service := scripted(t)
	for _, cond := range []store.PutCondition{{}, {Mode: store.PutIfMatch}, {Mode: 9}} {
		_, err := s.Put(t.Context(), "name", nil, cond)
		wantOnly(t, err, store.ErrInvalid)
	}
	for _, etag := range []store.ETag{"bogus", `W/"weak"`, "*", `"`, "\"a\r\nx: y\"", `"a"b"`} {
		_, err := s.Put(t.Context(), "name", nil, store.IfMatch(etag))
		wantOnly(t, err, store.ErrPrecondition)
	}
	if n := len(service.Seen()); n != 0 {
		t.Fatalf("%d requests", n)
	}
}

func TestLostRaceIsTheContractsWhateverTheServiceSays(t *testing.T) {
	for _, tc := range []struct {
		cond   store.PutCondition
		answer azfake.Answer
		want   error
	}{
		{store.Create, failure(409, "BlobAlreadyExists"), store.ErrExists},
		{store.Create, failure(412, "ConditionNotMet"), store.ErrExists},
		{store.IfMatch(someTag), failure(412, "ConditionNotMet"), store.ErrPrecondition},
		{store.IfMatch(someTag), failure(409, "BlobAlreadyExists"), store.ErrPrecondition},
		{store.IfMatch(someTag), failure(404, "BlobNotFound"), store.ErrPrecondition},
		{store.Always, failure(412, "LeaseIdMissing"), store.ErrUnavailable},
	} {
		for _, size := range []int{1, testSingle + 1} {
			s, _ := scripted(t, append(blockAnswers(size), tc.answer)...)
			_, err := s.Put(t.Context(), "name", make([]byte, size), tc.cond)
			wantOnly(t, err, tc.want)
		}
	}
}

// blockAnswers are the answers to the blocks of a blob, if it is written in blocks.
func blockAnswers(size int) []azfake.Answer {
	var answers []azfake.Answer
	if size > testSingle {
		for range (size + testBlock - 1) / testBlock {
			answers = append(answers, azfake.Answer{Status: http.StatusCreated})
		}
	}
	return answers
}

func TestPutIsRepeatedOnlyIfItHadNoEffect(t *testing.T) {
	for _, tc := range []struct {
		name     string
		first    azfake.Answer
		requests int
		want     error
	}{
		{"Busy", failure(503, "ServerBusy"), 2, nil},
		{"TimedOut", failure(500, "OperationTimedOut"), 1, store.ErrOutcomeUnknown},
		{"Internal", failure(500, "InternalError"), 1, store.ErrOutcomeUnknown},
		{"Reset", azfake.Answer{Err: azfake.ErrReset}, 1, store.ErrOutcomeUnknown},
		{"NoETag", azfake.Answer{Status: http.StatusCreated}, 1, store.ErrOutcomeUnknown},
		{"TooLarge", failure(413, "RequestBodyTooLarge"), 1, store.ErrTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, service := scripted(t, tc.first, created())
				_, err := s.Put(t.Context(), "name", []byte("data"), store.Create)
				wantOnly(t, err, tc.want)
				if n := len(service.Seen()); n != tc.requests {
					t.Fatalf("%d requests, want %d", n, tc.requests)
				}
				for _, seen := range service.Seen() {
					if seen.Body != "data" {
						t.Fatalf("a try sent %q", seen.Body)
					}
				}
			})
		})
	}
}

// staging is a service that assembles blobs from blocks.
type staging struct {
	mu     sync.Mutex
	blocks map[string]string
	blob   string
	heads  []http.Header
	// fail answers the n-th request instead.
	fail map[int]azfake.Answer
	n    int
}

func (s *staging) do(req *http.Request, body string) azfake.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	if a, ok := s.fail[s.n]; ok {
		return a
	}
	query := req.URL.Query()
	if query.Get("comp") == "block" {
		s.blocks[query.Get("blockid")] = body
		if req.Header.Get("If-None-Match")+req.Header.Get("If-Match") != "" {
			return failure(400, "UnsupportedHeader")
		}
		return azfake.Answer{Status: http.StatusCreated}
	}
	var list struct{ Latest []string }
	if err := xml.Unmarshal([]byte(body), &list); err != nil {
		return failure(400, "InvalidXmlDocument")
	}
	s.heads = append(s.heads, req.Header.Clone())
	var whole strings.Builder
	for _, id := range list.Latest {
		block, ok := s.blocks[id]
		if !ok {
			return failure(400, "InvalidBlockList")
		}
		whole.WriteString(block)
	}
	s.blob, s.blocks = whole.String(), map[string]string{}
	return created()
}

// stagingStore opens a store on such a service.
func stagingStore(t *testing.T, fail map[int]azfake.Answer) (*Store, *staging) {
	t.Helper()
	st := &staging{blocks: map[string]string{}, fail: fail}
	s, err := New(t.Context(), Options{ConnectionString: fakeString, Container: "box", Lazy: true, Transport: transporter(
		func(req *http.Request) (*http.Response, error) {
			var raw bytes.Buffer
			if req.Body != nil {
				if _, err := raw.ReadFrom(req.Body); err != nil {
					return nil, err
				}
				req.Body.Close()
			}
			return azfake.New(t, st.do(req, raw.String())).Do(req)
		})})
	if err != nil {
		t.Fatal(err)
	}
	s.single, s.block = testSingle, testBlock
	return s, st
}

type transporter func(*http.Request) (*http.Response, error)

func (f transporter) Do(r *http.Request) (*http.Response, error) { return f(r) }

func numbered(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i>>8) ^ byte(i)
	}
	return data
}

func TestLargeBlobIsWrittenInBlocksUnderOneCondition(t *testing.T) {
	for _, size := range []int{testSingle + 1, 3 * testBlock, 3*testBlock + 7} {
		s, st := stagingStore(t, nil)
		data := numbered(size)
		if _, err := s.Put(t.Context(), "name", data, store.Create); err != nil {
			t.Fatal(err)
		}
		if st.blob != string(data) {
			t.Fatalf("%d bytes arrived as %d, or not the same", size, len(st.blob))
		}
		if len(st.heads) != 1 || st.heads[0].Get("If-None-Match") != "*" {
			t.Fatalf("commits with %v", st.heads)
		}
	}
}

func TestBlocksLostOnTheWayAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := stagingStore(t, map[int]azfake.Answer{
			1: {Err: azfake.ErrReset}, 2: failure(500, "InternalError"), 3: failure(503, "ServerBusy"),
		})
		data := numbered(3 * testBlock)
		if _, err := s.Put(t.Context(), "name", data, store.Create); err != nil {
			t.Fatal(err)
		}
		if st.blob != string(data) || st.n != 7 {
			t.Fatalf("%d bytes after %d requests", len(st.blob), st.n)
		}
	})
}

func TestBlocksDiscardedByAnotherWriterAreStagedAnew(t *testing.T) {
	const blocks = 3
	gone := failure(400, "InvalidBlockList")
	s, st := stagingStore(t, map[int]azfake.Answer{blocks + 1: gone})
	data := numbered(blocks * testBlock)
	if _, err := s.Put(t.Context(), "name", data, store.Always); err != nil || st.blob != string(data) {
		t.Fatalf("%d bytes, %v", len(st.blob), err)
	}
	always := map[int]azfake.Answer{}
	for i := 1; i <= stagings; i++ {
		always[i*(blocks+1)] = gone
	}
	s, st = stagingStore(t, always)
	_, err := s.Put(t.Context(), "name", data, store.Always)
	wantOnly(t, err, store.ErrUnavailable)
	if st.n != stagings*(blocks+1) {
		t.Fatalf("%d requests", st.n)
	}
}

func TestLostAnswerToTheCommitLeavesTheOutcomeUnknown(t *testing.T) {
	s, st := stagingStore(t, map[int]azfake.Answer{4: {Err: azfake.ErrReset}})
	_, err := s.Put(t.Context(), "name", numbered(3*testBlock), store.Create)
	wantOnly(t, err, store.ErrOutcomeUnknown)
	if st.n != 4 {
		t.Fatalf("%d requests", st.n)
	}
}

func TestBlockThatCannotBeStagedFailsThePut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := map[int]azfake.Answer{}
		for i := range 100 {
			fail[i] = azfake.Answer{Err: azfake.ErrReset}
		}
		s, st := stagingStore(t, fail)
		_, err := s.Put(t.Context(), "name", numbered(3*testBlock), store.Create)
		wantOnly(t, err, store.ErrUnavailable)
		if len(st.heads) != 0 {
			t.Fatal("a blob was committed")
		}
	})
}

func TestBlockNamesAreFreshAndOfOneLength(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		for _, id := range blockIDs(20) {
			if seen[id] || len(id) != 24 {
				t.Fatalf("block name %q", id)
			}
			seen[id] = true
		}
	}
}

func TestNamesReachTheServiceUnchanged(t *testing.T) {
	for _, name := range []string{"a", "a/b/c", "A~z._-9", "a/.hidden/x"} {
		s, service := scripted(t, created())
		if _, err := s.Put(t.Context(), name, nil, store.Always); err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(service.Seen()[0].URL)
		if err != nil || u.Path != "/acc/box/"+name {
			t.Errorf("%q arrived as %q, %v", name, u.Path, err)
		}
	}
	s, _ := scripted(t)
	for _, name := range []string{"", "/", "a//b", "../a", "a b", "a?b", "a%2Fb", strings.Repeat("n", store.MaxKeyBytes+1)} {
		_, err := s.Put(t.Context(), name, nil, store.Always)
		wantOnly(t, err, store.ErrInvalid)
	}
	_, err := s.Put(t.Context(), "a", make([]byte, store.MaxBlobBytes+1), store.Always)
	wantOnly(t, err, store.ErrTooLarge)
}

func TestSignatureStaysOutOfErrors(t *testing.T) {
	service := azfake.New(t, azfake.Answer{Err: azfake.ErrReset})
	s, err := New(t.Context(), Options{ServiceURL: "http://blobs.example", SAS: "sv=1&sig=hush", Container: "box", Lazy: true, Transport: service})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		_, errPut := s.Put(t.Context(), "name", nil, store.Always)
		_, _, errGet := s.Get(t.Context(), "name")
		_, errList := s.List(t.Context(), "", "")
		for _, err := range []error{errPut, errGet, errList, s.Delete(t.Context(), "name")} {
			if err == nil || strings.Contains(fmt.Sprintf("%v %+v", err, err), "hush") {
				t.Errorf("error %v", err)
			}
		}
	})
	for _, seen := range service.Seen() {
		if !strings.Contains(seen.URL, "sig=hush") {
			t.Errorf("request without its signature: %s", seen.URL)
		}
	}
}
