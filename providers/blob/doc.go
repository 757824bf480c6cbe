// Package blob is the store.BlobStore over Azure Blob storage: block blobs in one
// container.
//
// A blob of up to 8 MiB is written by one request; a larger one in blocks, which
// nobody sees until one last request, the one that carries the condition, names
// them. Block names are fresh for each write, so that two writers of one name
// cannot mix their blocks.
package blob
