package api

import (
	"maps"
	"net/http"
	"slices"
)

// Code is the machine-readable reason of a refusal, part of the contract.
type Code string

// The codes that this version answers with.
const (
	CodeInvalidArgument Code = "invalid_argument"
	CodeDigestMismatch  Code = "digest_mismatch"
	// CodeLengthRequired: a body may have been lost on the way, see
	// Config.LosesBodies.
	CodeLengthRequired      Code = "length_required"
	CodeUnauthenticated     Code = "unauthenticated"
	CodeAuthorizationDenied Code = "authorization_denied"
	CodeTreeNotFound        Code = "tree_not_found"
	CodeKeyNotFound         Code = "key_not_found"
	CodeRouteNotFound       Code = "route_not_found"
	CodeMethodNotAllowed    Code = "method_not_allowed"
	CodeTreeExists          Code = "tree_exists"
	CodeTreeDeleted         Code = "tree_deleted"
	CodeTreeNotEmpty        Code = "tree_not_empty"
	CodeCursorNotFound      Code = "cursor_not_found"
	CodeSnapshotExpired     Code = "snapshot_expired"
	CodeOperationNotFound   Code = "operation_not_found"
	CodeOperationInProgress Code = "operation_in_progress"
	CodeOperationMismatch   Code = "operation_mismatch"
	CodeChunkOutOfSequence  Code = "chunk_out_of_sequence"
	CodeBulkLoadOrder       Code = "bulk_load_order"
	CodeQuotaExceeded       Code = "quota_exceeded"
	CodeVersionMismatch     Code = "version_mismatch"
	CodeKeyTooLong          Code = "key_too_long"
	CodeValueTooLarge       Code = "value_too_large"
	CodeRequestTooLarge     Code = "request_too_large"
	CodeUnsupportedEncoding Code = "unsupported_encoding"
	CodeStorageThrottled    Code = "storage_throttled"
	CodeRoutingUnstable     Code = "routing_unstable"
	CodeTopologyUnstable    Code = "topology_unstable"
	CodeUnavailable         Code = "unavailable"
	CodeInternal            Code = "internal"
)

// meaning is what a code says to people and to HTTP.
type meaning struct {
	status int
	title  string
}

// Codes returns every code that this version answers with, in order.
func Codes() []Code { return slices.Sorted(maps.Keys(meanings)) }

var meanings = map[Code]meaning{
	CodeInvalidArgument:     {http.StatusBadRequest, "The request is not valid"},
	CodeDigestMismatch:      {http.StatusBadRequest, "The content does not have the digest that was sent"},
	CodeLengthRequired:      {http.StatusLengthRequired, "The body may be lost"},
	CodeUnauthenticated:     {http.StatusUnauthorized, "No valid credential was given"},
	CodeAuthorizationDenied: {http.StatusForbidden, "The caller may not do this"},
	CodeTreeNotFound:        {http.StatusNotFound, "The tree does not exist"},
	CodeKeyNotFound:         {http.StatusNotFound, "The key does not exist"},
	CodeRouteNotFound:       {http.StatusNotFound, "There is no such resource"},
	CodeMethodNotAllowed:    {http.StatusMethodNotAllowed, "The resource does not have this method"},
	CodeTreeExists:          {http.StatusConflict, "The tree exists"},
	CodeTreeDeleted:         {http.StatusConflict, "The tree is deleted"},
	CodeTreeNotEmpty:        {http.StatusConflict, "The tree is not empty"},
	CodeCursorNotFound:      {http.StatusNotFound, "The cursor does not exist"},
	CodeSnapshotExpired:     {http.StatusGone, "The snapshot is not kept any more"},
	CodeOperationNotFound:   {http.StatusNotFound, "The operation does not exist"},
	CodeOperationMismatch:   {http.StatusConflict, "The operation does not match"},
	CodeChunkOutOfSequence:  {http.StatusConflict, "The chunk is not the one expected"},
	CodeBulkLoadOrder:       {http.StatusUnprocessableEntity, "The entries are not in ascending order"},
	CodeQuotaExceeded:       {http.StatusTooManyRequests, "A cap is reached"},
	CodeOperationInProgress: {http.StatusConflict, "Another operation is in progress"},
	CodeVersionMismatch:     {http.StatusPreconditionFailed, "A condition did not hold"},
	CodeKeyTooLong:          {http.StatusRequestEntityTooLarge, "The key is too long"},
	CodeValueTooLarge:       {http.StatusRequestEntityTooLarge, "The value is too large"},
	CodeRequestTooLarge:     {http.StatusRequestEntityTooLarge, "The request is too large"},
	CodeUnsupportedEncoding: {http.StatusUnsupportedMediaType, "The content coding is not understood"},
	CodeStorageThrottled:    {http.StatusServiceUnavailable, "The storage is over a limit"},
	CodeRoutingUnstable:     {http.StatusServiceUnavailable, "The owner of the key is not settled"},
	CodeTopologyUnstable:    {http.StatusServiceUnavailable, "The shard map moved too often"},
	CodeUnavailable:         {http.StatusServiceUnavailable, "The service cannot answer now"},
	CodeInternal:            {http.StatusInternalServerError, "The service failed"},
}
