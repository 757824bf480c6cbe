// Package azhttp holds what the two providers of Azure Storage share below their
// SDKs: the transport, the account they speak to, bounded retries, and the
// translation of failed exchanges into the errors of the storage contract.
package azhttp
