package proxy

import "github.com/keygate/keygate/internal/accesslog"

// RespondByRoute returns the status and the body of the response with which the route of an admitted request responds
// (admit.Respond). body is nil if the status allows none. The engine adds the fields of EachOwnField.
func (x *Exchange) RespondByRoute() (status int, body []byte) {
	v := &x.Verdict
	x.responds = true
	x.metered = v.Charge.IsMetered()
	// The request costs what it would if the upstream had responded with an error: a price for each request, and nothing that is
	// read from a response.
	if x.costs = newCosts(v.Cost); x.costs != nil {
		x.costs.status, x.costs.whole = statusOfOwn, true
	}
	if x.Result = accesslog.Responded; v.Response.Redirect != nil {
		x.Result = accesslog.Redirected
	}
	return v.Response.Status, v.Response.Body
}

// statusOfOwn is the status by which costs of a response of a route itself are settled.
const statusOfOwn = 400

// AppendOwnFields appends the fields of EachOwnField, each as "Name: value\r\n".
func (x *Exchange) AppendOwnFields(dst []byte) []byte {
	x.EachOwnField(func(name, value string) {
		dst = append(append(append(append(dst, name...), ": "...), value...), "\r\n"...)
	})
	return dst
}

// EachOwnField calls yield with each field of a response of the gateway itself that its route determines, beside Content-Type. value is
// valid until yield returns.
func (x *Exchange) EachOwnField(yield func(name, value string)) {
	if !x.responds {
		return
	}
	r := x.Verdict.Response
	if r.Redirect != nil {
		var room [512]byte
		yield("Location", Text(x.Verdict.AppendLocation(room[:0])))
	}
	for i := range r.Headers {
		yield(r.Headers[i].Name, r.Headers[i].Value)
	}
}
