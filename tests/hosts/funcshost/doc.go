// Package funcshost is a double of the Azure Functions host with a custom
// handler behind it, faults included. It reads a function app as the host does,
// runs the handler, forwards what its routes let through, and calls timers.
//
// Forwarding is what the host does with enableForwardingHttpRequest, as its
// source tells: a body is copied only if it has a Content-Length above zero, and
// its type with it; the path is rebuilt from its unescaped form, and so may mean
// something else; repeated query names are joined; headers that belong to a body
// get lost; an answer is there as a whole or not at all; a handler that does not
// answer becomes a 500 without a word. What stands in front of the host, the
// front end of the platform, adds headers of its own and gives up after 230 s.
package funcshost
