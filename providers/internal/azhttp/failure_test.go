package azhttp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/latticekv/lattice/core/store"
)

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		status      int
		code        string
		read, write error
	}{
		{429, "", store.ErrThrottled, store.ErrThrottled},
		{503, "ServerBusy", store.ErrThrottled, store.ErrThrottled},
		{500, "ServerBusy", store.ErrThrottled, store.ErrThrottled},
		{500, "OperationTimedOut", store.ErrThrottled, store.ErrOutcomeUnknown},
		{503, "", store.ErrUnavailable, store.ErrOutcomeUnknown},
		{500, "InternalError", store.ErrUnavailable, store.ErrOutcomeUnknown},
		{502, "", store.ErrUnavailable, store.ErrOutcomeUnknown},
		{504, "", store.ErrUnavailable, store.ErrOutcomeUnknown},
		{408, "", store.ErrUnavailable, store.ErrOutcomeUnknown},
		{302, "", store.ErrUnavailable, store.ErrOutcomeUnknown},
		{200, "", store.ErrUnavailable, store.ErrOutcomeUnknown},
		{413, "", store.ErrTooLarge, store.ErrTooLarge},
		{400, "EntityTooLarge", store.ErrTooLarge, store.ErrTooLarge},
		{400, "PropertyValueTooLarge", store.ErrTooLarge, store.ErrTooLarge},
		{413, "RequestBodyTooLarge", store.ErrTooLarge, store.ErrTooLarge},
		{404, "ResourceNotFound", store.ErrNotFound, store.ErrNotFound},
		{404, "EntityNotFound", store.ErrNotFound, store.ErrNotFound},
		{404, "BlobNotFound", store.ErrNotFound, store.ErrNotFound},
		{404, "TableNotFound", store.ErrUnavailable, store.ErrUnavailable},
		{404, "ContainerNotFound", store.ErrUnavailable, store.ErrUnavailable},
		{404, "", store.ErrUnavailable, store.ErrUnavailable},
		{409, "EntityAlreadyExists", store.ErrExists, store.ErrExists},
		{409, "BlobAlreadyExists", store.ErrExists, store.ErrExists},
		{409, "TableBeingDeleted", store.ErrUnavailable, store.ErrUnavailable},
		{412, "UpdateConditionNotSatisfied", store.ErrPrecondition, store.ErrPrecondition},
		{412, "ConditionNotMet", store.ErrPrecondition, store.ErrPrecondition},
		{400, "InvalidInput", store.ErrInvalid, store.ErrInvalid},
		{416, "InvalidRange", store.ErrInvalid, store.ErrInvalid},
		{401, "", store.ErrUnavailable, store.ErrUnavailable},
		{403, "AuthenticationFailed", store.ErrUnavailable, store.ErrUnavailable},
	} {
		t.Run(fmt.Sprintf("%d%s", tc.status, tc.code), func(t *testing.T) {
			e := &StatusError{Status: tc.status, Code: tc.code}
			wantOnly(t, Fail(e, false), tc.read)
			wantOnly(t, Fail(e, true), tc.write)
		})
	}
}

var sentinels = []error{
	store.ErrNotFound, store.ErrExists, store.ErrPrecondition, store.ErrThrottled, store.ErrUnavailable,
	store.ErrOutcomeUnknown, store.ErrTooLarge, store.ErrInvalid, store.ErrCorrupt,
}

func wantOnly(t *testing.T, err, want error) {
	t.Helper()
	for _, s := range sentinels {
		if errors.Is(err, s) != errors.Is(want, s) {
			t.Errorf("error %q: is %q: %v, want only %q", err, s, errors.Is(err, s), want)
		}
	}
}

func TestThrottlingCarriesTheAdviceOfTheService(t *testing.T) {
	resp := &http.Response{StatusCode: 503, Header: http.Header{}}
	resp.Header.Set("x-ms-error-code", "ServerBusy")
	resp.Header.Set("x-ms-request-id", "r-1")
	resp.Header.Set("Retry-After", "7")
	err := Fail(NewStatusError(resp), true)
	if got := store.RetryAfter(err); got != 7*time.Second {
		t.Fatalf("retry after %s, want 7s", got)
	}
	for _, part := range []string{"503", "ServerBusy", "r-1"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not name %s", err, part)
		}
	}
}

func TestRetryAfterForms(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name, header, value string
		want                time.Duration
	}{
		{"Seconds", "Retry-After", "3", 3 * time.Second},
		{"Date", "Retry-After", now.Add(5 * time.Second).Format(http.TimeFormat), 5 * time.Second},
		{"PastDate", "Retry-After", now.Add(-time.Hour).Format(http.TimeFormat), 0},
		{"FarDate", "Retry-After", now.Add(24 * time.Hour).Format(http.TimeFormat), maxRetryAfter},
		{"Milliseconds", "retry-after-ms", "250", 250 * time.Millisecond},
		{"StorageMilliseconds", "x-ms-retry-after-ms", "40", 40 * time.Millisecond},
		{"Negative", "Retry-After", "-1", 0},
		{"Huge", "Retry-After", "9223372036854775807", maxRetryAfter},
		{"Words", "Retry-After", "soon", 0},
		{"Missing", "Other", "1", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := http.Header{}
			h.Set(tc.header, tc.value)
			if got := retryAfter(h, now); got != tc.want {
				t.Fatalf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestRefusalOfAnSDKIsFound(t *testing.T) {
	resp := &http.Response{StatusCode: 409, Header: http.Header{}}
	resp.Header.Set("Retry-After", "2")
	err := fmt.Errorf("wrapped: %w", &azcore.ResponseError{StatusCode: 409, ErrorCode: "BlobAlreadyExists", RawResponse: resp})
	got := FromSDK(err)
	if got == nil || got.Status != 409 || got.Code != "BlobAlreadyExists" || got.RetryAfter != 2*time.Second {
		t.Fatalf("got %+v", got)
	}
	if got := FromSDK(&azcore.ResponseError{StatusCode: 404, ErrorCode: "X"}); got == nil || got.Status != 404 {
		t.Fatalf("got %+v", got)
	}
	for _, err := range []error{nil, errors.New("reset")} {
		if got := FromSDK(err); got != nil {
			t.Errorf("%v became %v", err, got)
		}
	}
}
