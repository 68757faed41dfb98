package adminapi

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// The largest bodies (contract, section 2), in bytes.
const (
	maxBody     = 1 << 20
	maxDocument = 16 << 20
)

// operation is one call of the API: what the document says of it, what is
// checked before it runs, and how it runs.
type operation struct {
	id, method, path, tag string
	summary, description  string

	query []queryParam

	body         reflect.Type // of a JSON body; nil for none
	bodyOptional bool         // no body at all counts as an object without members
	document     bool         // the body is a specification or configuration file instead
	maxBody      int64        // bytes; 0 for maxBody
	ifMatch      bool         // honours If-Match
	replayable   bool         // keeps its answer under an Idempotency-Key
	success      int          // status
	result       reflect.Type // of the JSON answer; nil for media
	media        []string     // media types of an answer that is no JSON record
	hasETag      bool
	hasLocation  bool  // has a Location
	errors       []int // statuses beyond those that follow from the above
	public       bool  // needs no key
	anyScope     bool  // any account-level key may call it
	readScope    bool  // needs no more than the scope read, whatever the method
	allowOwnKey  bool  // a key may call it on itself whatever its scope
	operatorOnly bool  // for the account default alone

	run func(c *call) (response, error)
}

// response is what a call that succeeded gives back.
type response struct {
	status int
	header map[string]string
	body   any    // becomes JSON
	raw    []byte // instead of body; header has its Content-Type
	replay any    // what a replay shows instead of a body that holds a secret; nil if it holds none
}

func ok(body any) response { return response{status: http.StatusOK, body: body} }

// with returns a with a header field set.
func (a response) with(name, value string) response {
	h := make(map[string]string, len(a.header)+1)
	for k, v := range a.header {
		h[k] = v
	}
	h[name] = value
	a.header = h
	return a
}

func (a response) created(location string) response {
	a.status = http.StatusCreated
	return a.with("Location", location)
}

// queryParam is a parameter in the query of a call.
type queryParam struct {
	name, doc string
	schema    *huma.Schema
	example   any
	check     func(value string) error // of a value that is there; nil for any text but the empty one
}

// operations lists every call. A call that is not here does not exist.
func (a *API) operations() []operation {
	var ops []operation
	for _, group := range [][]operation{
		a.gatewayOperations(), a.documentOperations(), a.revisionOperations(), a.routeOperations(),
		a.keyOperations(), a.webhookOperations(), a.deliveryOperations(), a.eventOperations(), a.accountOperations(), a.metaOperations(),
		a.auditOperations(), a.trafficOperations(), a.requestOperations(), a.limitOperations(),
	} {
		ops = append(ops, group...)
	}
	return ops
}
