package gateway

import (
	"fmt"
	"slices"
)

// EverydayMethods returns the methods that nearly all clients send.
func EverydayMethods() []string {
	return []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
}

// usualMethods are the methods that clients are known to send and that a route may have: those of HTTP, of the
// registry of IANA (WebDAV, CalDAV, versioning), of caches and of UPnP. The ones of every day come first, because
// the first that is near is suggested.
//
//nolint:gochecknoglobals // a table that is never written
var usualMethods = append(EverydayMethods(),
	"QUERY",
	"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK", "MERGE", "MKACTIVITY",
	"MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH", "PROPFIND", "PROPPATCH", "REBIND",
	"REPORT", "SEARCH", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL",
	"BAN", "PURGE", "REFRESH", "M-SEARCH", "NOTIFY", "SUBSCRIBE", "UNSUBSCRIBE",
)

// MethodWarning returns a warning for a valid method that clients do not usually send, with the method that was
// probably meant, and "" for any other.
func MethodWarning(method string) string {
	if slices.Contains(usualMethods, method) {
		return ""
	}
	for _, usual := range usualMethods {
		if oneSlip(method, usual) {
			return fmt.Sprintf("%s is not a usual method: did you mean %s?", method, usual)
		}
	}
	return method + " is not a usual method: only requests that are sent with it match"
}

// oneSlip reports whether one slip of the fingers makes b of a: one byte more, less or different, or two neighbours
// swapped. Strings of one byte and equal strings are never one slip apart.
func oneSlip(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(a) < 2 || len(b) > len(a)+1 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(b) > len(a) {
		return a[i:] == b[i+1:]
	}
	if i == len(a) {
		return false // equal
	}
	return a[i+1:] == b[i+1:] || i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
}

// RouteWarnings returns the warnings about the methods of one route, which the response to a change of it and its
// record carry. What only a document is warned of is refused in a single route.
func RouteWarnings(methods []string) []string {
	var all []string
	for _, m := range methods {
		if w := MethodWarning(m); w != "" {
			all = append(all, w)
		}
	}
	return all
}
