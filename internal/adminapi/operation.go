package adminapi

import (
	"maps"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// Maximum sizes of a request body (contract, section 2), in bytes.
const (
	maxBody     = 1 << 20
	maxDocument = 16 << 20
	maxImport   = 4 << 20 // of keys
)

// operation is one call of the API: its text in the OpenAPI document, the checks
// that apply to it, and the function that runs it.
type operation struct {
	id, method, path, tag string
	summary, description  string

	query []queryParam

	body         reflect.Type // type of the JSON body; nil if the call takes none
	bodyOptional bool         // a missing body means an empty object
	document     bool         // takes an OpenAPI document or a configuration file as the raw body
	maxBody      int64        // in bytes; 0 means the constant maxBody
	ifMatch      bool         // honors If-Match
	replayable   bool         // stores its response under an Idempotency-Key
	success      int          // status of a successful response
	result       reflect.Type // type of the JSON response; nil if media is set
	dryRun       reflect.Type // type of the JSON response to a dry run, with status 200; nil if it is the same as without
	waits        string       // what status 202 means, with an inFlightRecord; "" if there is no such response
	hasState     bool         // the record has state that its ETag does not cover, so that it is never a 304
	alsoOK       string       // what status 200 means, with the same result, if success is another; "" if there is no such response
	media        []string     // media types of a response that is not a JSON record
	hasETag      bool         // the response has an ETag
	hasLocation  bool         // the response has a Location
	errors       []int        // error statuses besides those that follow from the other fields
	public       bool         // needs no key
	page         bool         // browsers go there, so that they get errors as a page
	hook         bool         // takes a signed hook; see admitHook
	anyQuery     bool         // takes further query parameters, which others choose, and passes over them
	anyScope     bool         // any account-level key may call it
	readScope    bool         // needs the scope read, whatever the method
	allowOwnUser bool         // a user may apply it to itself, whatever its role
	oauth        bool         // also takes a form as its body; one that is not valid is 400 (RFC 6749, sections 3.2 and 5.2)
	pageOK       string       // what status 200 means, with a page as its body, if success is another; "" if there is no such response
	allowOwnKey  bool         // a key may apply it to itself, whatever its scope
	operatorOnly bool         // only for keys of the account default

	run func(c *call) (response, error)
}

// response is the response to a successful call.
type response struct {
	status int
	header map[string]string
	body   any     // encoded as JSON
	raw    []byte  // sent as it is in place of body; header has its Content-Type
	stream *stream // sent piece by piece in place of body; header has its Content-Type
	replay any     // stored for replays in place of a body that holds a secret; nil if body holds none
}

// takes returns the run function of a call with a JSON body of the type T: run gets the body, decoded.
func takes[T any](run func(c *call, body T) (response, error)) func(c *call) (response, error) {
	return func(c *call) (response, error) {
		var body T
		if err := c.decode(&body); err != nil {
			return response{}, err
		}
		return run(c, body)
	}
}

// respond returns what ends a call: of the result of its operation it makes the response with present, and it
// passes on the operation's error.
func respond[T any](present func(T) response) func(result T, err error) (response, error) {
	return func(result T, err error) (response, error) {
		if err != nil {
			return response{}, err
		}
		return present(result), nil
	}
}

// show is respond for a response that has nothing but the record that present returns.
func show[T, R any](present func(T) R) func(result T, err error) (response, error) {
	return respond(func(result T) response { return ok(present(result)) })
}

func ok(body any) response { return response{status: http.StatusOK, body: body} }

// with returns a copy of r with a header added.
func (r response) with(name, value string) response {
	h := make(map[string]string, len(r.header)+1)
	maps.Copy(h, r.header)
	h[name] = value
	r.header = h
	return r
}

func (r response) created(location string) response {
	r.status = http.StatusCreated
	return r.with("Location", location)
}

// queryParam is a query parameter of a call.
type queryParam struct {
	name, doc string
	schema    *huma.Schema
	example   any
	required  bool
	check     func(value string) error // checks a given value; nil accepts any non-empty text
}

// operations returns all calls of the API.
func (a *API) operations() []operation {
	var ops []operation
	for _, group := range [][]operation{
		a.gatewayOperations(), a.documentOperations(), a.validationOperations(), a.revisionOperations(), a.repositoryOperations(), a.upstreamOperations(), a.canaryOperations(), a.routeOperations(), a.tryOperations(),
		a.keyOperations(), a.ownerOperations(), a.quotaOperations(), a.usageRecordOperations(), a.planOperations(), a.issuerOperations(), a.denialOperations(), a.certificateOperations(), a.webhookOperations(), a.deliveryOperations(), a.eventOperations(), a.accountOperations(), a.sessionOperations(), a.signInOperations(), a.userOperations(), a.userTokenOperations(), a.loginOperations(), a.operatorOperations(), a.nodeOperations(), a.metaOperations(),
		a.auditOperations(), a.trafficOperations(), a.requestOperations(), a.limitOperations(),
	} {
		ops = append(ops, group...)
	}
	for i := range ops {
		if op := &ops[i]; op.mutates() {
			op.query = append(slices.Clip(op.query), waitParam())
		}
	}
	return ops
}
