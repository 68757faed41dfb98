package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/keygatetest"
	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// orders is a document with what requests can do wrong.
const orders = `{"openapi": "3.1.0", "info": {"title": "orders", "version": "1"}, "paths": {
	"/orders": {"post": {"x-keygate-auth": "none",
		"parameters": [{"in": "query", "name": "dry_run", "schema": {"type": "boolean"}}, {"in": "header", "name": "X-Tenant", "required": true, "schema": {"type": "string", "pattern": "^[a-z]+$"}}],
		"requestBody": {"required": true, "content": {
			"application/json": {"schema": {"type": "object", "required": ["qty"], "properties": {"qty": {"type": "integer", "minimum": 1}}, "additionalProperties": false}},
			"application/x-www-form-urlencoded": {"schema": {"type": "object", "properties": {"qty": {"type": "integer"}}}}}}}},
	"/orders/{id}": {"get": {"x-keygate-auth": "none", "parameters": [{"in": "path", "name": "id", "required": true, "schema": {"type": "integer"}}]}},
	"/notes": {"post": {"x-keygate-auth": "none", "requestBody": {"content": {"application/json": {"schema": {"type": "integer", "maximum": 9}}}}}},
	"/ping": {"post": {"x-keygate-auth": "none"}},
	"/odd": {"post": {"x-keygate-auth": "none", "requestBody": {"content": {"application/json": {"schema": {"pattern": "(?=a)"}}}}}},
	"/fixed": {"get": {"x-keygate-auth": "none", "x-keygate-respond": {"status": 200, "content_type": "text/plain", "body": "fixed"}, "parameters": [{"in": "query", "name": "n", "required": true, "schema": {"type": "integer"}}]}}
}}`

// attempt is a request and its result if the document is enforced.
type attempt struct {
	method, target, contentType, body string
	chunked                           bool
	header                            map[string]string
	want                              int // 200 if it meets the document
}

func attempts() []attempt {
	tenant := map[string]string{"X-Tenant": "acme"}
	large := `{"qty": 1}` + strings.Repeat(" ", 1<<20)
	var list []attempt
	for _, chunked := range []bool{false, true} {
		list = append(
			list,
			attempt{"POST", "/orders", "application/json", `{"qty": 1}`, chunked, tenant, 200},
			attempt{"POST", "/orders", "application/json", `{"qty": 0}`, chunked, tenant, 400},
			attempt{"POST", "/orders", "application/json", `{"qty": 1, "qty": 2}`, chunked, tenant, 400},
			attempt{"POST", "/orders", "application/json", `{"qty": 1} 2`, chunked, tenant, 400},
			attempt{"POST", "/orders", "application/json", `{"qty": 1, "more": 2}`, chunked, tenant, 400},
			attempt{"POST", "/orders", "application/json; charset=utf-16", `{"qty": 1}`, chunked, tenant, 415},
			attempt{"POST", "/orders", "text/plain", `{"qty": 1}`, chunked, tenant, 415},
			attempt{"POST", "/orders", "", `{"qty": 1}`, chunked, tenant, 415},
			attempt{"POST", "/orders", "application/json", `{"qty": 1}`, chunked, map[string]string{"X-Tenant": "acme", "Content-Encoding": "gzip"}, 415},
			attempt{"POST", "/orders", "application/json", large, chunked, tenant, 413},
			attempt{"POST", "/orders", "application/json", large[:1<<20], chunked, tenant, 200},
			attempt{"POST", "/orders", "application/x-www-form-urlencoded", "qty=1", chunked, tenant, 200},
			attempt{"POST", "/orders", "application/x-www-form-urlencoded", "qty=one", chunked, tenant, 400},
			attempt{"POST", "/odd", "application/json", "1", chunked, nil, 200},
			attempt{"POST", "/notes", "application/json", "9", chunked, nil, 200},
			attempt{"POST", "/notes", "application/json", "1e400", chunked, nil, 400},
			attempt{"POST", "/notes", "application/json", strings.Repeat("[", 1000), chunked, nil, 400},
			attempt{"POST", "/notes", "application/json", "\xef\xbb\xbf1", chunked, nil, 400},
			attempt{"POST", "/notes", "", `"more"`, chunked, nil, 415},
			attempt{"POST", "/notes", "text/plain", `"more"`, chunked, nil, 415},
			attempt{"POST", "/notes", "text/plain", strings.Repeat("more", 1<<18+1), chunked, nil, 415},
			attempt{"POST", "/notes", "text/plain", "", chunked, nil, 200},
			attempt{"POST", "/ping", "application/json", "{}", chunked, nil, 415},
			attempt{"POST", "/ping", "", "", chunked, nil, 200},
		)
	}
	return append(
		list,
		attempt{"POST", "/orders?dry_run=yes", "application/json", `{"qty": 1}`, false, tenant, 400},
		attempt{"POST", "/orders?dry_run=true&dry_run=true", "application/json", `{"qty": 1}`, false, tenant, 400},
		attempt{"POST", "/orders?dry_run=true&api_key=x", "application/json", `{"qty": 1}`, false, tenant, 200},
		attempt{"POST", "/orders", "application/json", `{"qty": 1}`, false, nil, 400},
		attempt{"POST", "/orders", "", "", false, tenant, 400},
		attempt{"POST", "/orders?dry%5Frun=true&dry_run=true", "application/json", `{"qty": 1}`, false, tenant, 400},
		attempt{"POST", "/orders?dry_run=true;dry_run=true", "application/json", `{"qty": 1}`, false, tenant, 400},
		attempt{"POST", "/orders?dry_run", "application/json", `{"qty": 1}`, false, tenant, 400},
		attempt{"POST", "/orders?dry_run=%zz", "application/json", `{"qty": 1}`, false, tenant, 400},
		attempt{"POST", "/orders", "application/json", `{"qty": 1}`, false, map[string]string{"X-Tenant": "acme", "X_tenant": "b"}, 400},
		attempt{"POST", "/orders", "application/json", `{"qty": 1, "q\u0074y": 2}`, false, tenant, 400},
		attempt{"GET", "/orders/12", "", "", false, nil, 200},
		attempt{"GET", "/orders/12;x", "", "", false, nil, 400},
		attempt{"GET", "/orders/12%20", "", "", false, nil, 400},
		attempt{"HEAD", "/orders/twelve", "", "", false, nil, 400},
		attempt{"GET", "/orders/12", "", "body", false, nil, 415},
		attempt{"HEAD", "/orders/12", "", "", false, nil, 200},
		attempt{"GET", "/orders/%31%32", "", "", false, nil, 200},
		attempt{"GET", "/orders/twelve", "", "", false, nil, 400},
		attempt{"GET", "/fixed?n=1", "", "", false, nil, 200},
		attempt{"GET", "/fixed?n=one", "", "", false, nil, 400},
	)
}

// overBoth calls f with a transport for each version of HTTP.
func overBoth(t *testing.T, f func(version string, transport *http.Transport)) {
	t.Helper()
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(version == "HTTP/1.1")
		transport.Protocols.SetUnencryptedHTTP2(version == "HTTP/2")
		t.Cleanup(transport.CloseIdleConnections)
		f(version, transport)
	}
}

// make makes the request, and returns the status and the body of the response.
func (a *attempt) make(t *testing.T, transport *http.Transport, base string) (int, string) {
	t.Helper()
	var body io.Reader = http.NoBody
	if a.body != "" {
		body = strings.NewReader(a.body)
	}
	if a.chunked {
		body = io.MultiReader(body) // of an unknown length
	}
	req, err := http.NewRequestWithContext(t.Context(), a.method, base+a.target, body)
	if err != nil {
		t.Fatal(err)
	}
	if a.contentType != "" {
		req.Header.Set("Content-Type", a.contentType)
	}
	for name, value := range a.header {
		req.Header.Set(name, value)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// Guarantee: edge.md, section 6. Over both versions of HTTP, with a declared length and without one, report changes nothing and counts
// exactly the requests that enforce refuses, of their operations; a request that passes reaches the upstream with its whole body; and a refusal says what must
// be otherwise, without a value of the request.
func TestReportCountsWhatEnforceRefuses(t *testing.T) {
	s := keygatetest.Start(t)
	up := keygatetest.NewUpstream(t)
	g := "/v1/gateways/" + calling(t, s, "POST", "/v1/gateways", `{"name":"g","upstream_url":"`+up.URL+`","validate":"report"}`)["gateway_id"].(string)
	pushed := calling(t, s, "PUT", g+"/spec", orders)
	if text := fmt.Sprint(pushed["warnings"]); !strings.Contains(text, "POST /odd is unchecked") {
		t.Errorf("got the warnings %s, want that an operation is unchecked", text)
	}
	report := func() (requests, refused float64, data []any) {
		t.Helper()
		r := calling(t, s, "GET", g+"/validation", "")
		if list := r["unchecked"].([]any); len(list) != 1 || list[0].(map[string]any)["path"] != "/odd" {
			t.Errorf("got %v as unchecked, want /odd", list)
		}
		return r["requests"].(float64), r["refused"].(float64), r["data"].([]any)
	}
	var made, bad float64
	overBoth(t, func(version string, transport *http.Transport) {
		for i, a := range attempts() {
			reached := len(up.Requests())
			if status, body := a.make(t, transport, s.GatewayURL()); status != 200 {
				t.Errorf("%s, report, %d: got %d %s, want it forwarded", version, i, status, body)
			}
			if list := up.Requests(); !strings.HasPrefix(a.target, "/fixed") && (len(list) != reached+1 || list[reached].Body != a.body) {
				t.Errorf("%s, report, %d: the upstream did not get the request as it is", version, i)
			}
			if made++; a.want != 200 {
				bad++
			}
			if requests, refused, _ := report(); requests != made || refused != bad {
				t.Fatalf("%s, %d: %+v: got %v of %v requests in the report, want %v of %v", version, i, a.target, refused, requests, bad, made)
			}
		}
	})
	overBoth(t, func(_ string, transport *http.Transport) { // each uses the memory of the one before again
		(&attempt{"POST", "/notes", "application/json", `"more"`, false, nil, 400}).make(t, transport, s.GatewayURL())
		(&attempt{"GET", "/orders/12", "", "", false, nil, 200}).make(t, transport, s.GatewayURL())
	})
	_, _, data := report()
	for _, row := range data {
		method, pointer := row.(map[string]any)["method"].(string), row.(map[string]any)["pointer"].(string)
		if of := strings.Split(pointer, "/")[3]; of != "parameters" && !strings.EqualFold(of, method) && (of != "get" || method != "HEAD") {
			t.Errorf("the report has %q for %s, want the method of the operation", method, pointer)
		}
	}
	if text, err := json.Marshal(data); err != nil || strings.Contains(string(text), "twelve") || strings.Contains(string(text), "more") || !strings.Contains(string(text), "must be ≥ 1") {
		t.Errorf("got the report %s (%v), want no value or name of a request", text, err)
	}
	calling(t, s, "PATCH", g, `{"validate":"enforce"}`)
	overBoth(t, func(version string, transport *http.Transport) {
		for i, a := range attempts() {
			reached := len(up.Requests())
			status, body := a.make(t, transport, s.GatewayURL())
			if status != a.want {
				t.Errorf("%s, enforce, %d: %s %s: got %d %s, want %d", version, i, a.method, a.target, status, body, a.want)
			}
			if a.want == 200 {
				if list := up.Requests(); !strings.HasPrefix(a.target, "/fixed") && (len(list) != reached+1 || list[reached].Body != a.body) {
					t.Errorf("%s, enforce, %d: the upstream did not get the request as it is", version, i)
				}
				continue
			}
			if len(up.Requests()) != reached {
				t.Errorf("%s, enforce, %d: the upstream got a request that was refused", version, i)
			}
			if a.method == "HEAD" {
				continue
			}
			if !strings.Contains(body, `"code":"schema_mismatch"`) || !strings.Contains(body, `"errors":[{"message":"`) || strings.Contains(body, "twelve") {
				t.Errorf("%s, enforce, %d: got %s, want what must be otherwise", version, i, body)
			}
		}
	})
	refused := attempt{"POST", "/orders", "application/json", `{"qty": 0}`, false, map[string]string{"X-Tenant": "acme"}, 400}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	_, body := refused.make(t, transport, s.GatewayURL())
	var said struct {
		ID string `json:"request_id"`
	}
	if err := json.Unmarshal([]byte(body), &said); err != nil {
		t.Fatal(err)
	}
	explained := fmt.Sprint(calling(t, s, "GET", "/v1/requests/"+said.ID, "")["decision"])
	if want := "the body must be ≥ 1 (minimum at /paths/~1orders/post/requestBody/content/application~1json/schema/properties/qty)"; !strings.Contains(explained, want) || !strings.Contains(explained, "schema_mismatch") {
		t.Errorf("got the explanation %s, want %s", explained, want)
	}
	calling(t, s, "PATCH", g, `{"validate":null}`)
	overBoth(t, func(version string, transport *http.Transport) {
		for i, a := range attempts() {
			if status, body := a.make(t, transport, s.GatewayURL()); status != 200 {
				t.Errorf("%s, off, %d: got %d %s, want it forwarded", version, i, status, body)
			}
		}
	})
}

// Guarantee: what Connection takes from a request, or a client hides in its framing, does not meet the document either, and nothing of a
// body that was refused is taken for the next request on the connection. Over HTTP/1.1, the gateway sends a 100 itself where it must see
// the body, once, and refuses a declared length that is too large without one.
func TestRequestsThatHideFromTheDocument(t *testing.T) {
	s := keygatetest.Start(t)
	up := keygatetest.NewUpstream(t)
	g := "/v1/gateways/" + calling(t, s, "POST", "/v1/gateways", `{"name":"g","upstream_url":"`+up.URL+`","validate":"enforce"}`)["gateway_id"].(string)
	calling(t, s, "PUT", g+"/spec", orders)
	const (
		order  = "POST /orders HTTP/1.1\r\nHost: a\r\nX-Tenant: acme\r\nContent-Type: application/json\r\n"
		sized  = "Content-Length: 10\r\n\r\n{\"qty\": 1}"
		chunks = "Transfer-Encoding: chunked\r\n\r\n"
		note   = "POST /notes HTTP/1.1\r\nHost: a\r\n"
	)
	for name, c := range map[string]struct {
		request string
		want    int
		body    string // that the upstream gets
	}{
		"a request":                    {order + sized, 200, `{"qty": 1}`},
		"Connection takes a header":    {order + "Connection: X-Tenant\r\n" + sized, 400, ""},
		"Connection takes one of two":  {order + "X_Tenant: b\r\nConnection: X_Tenant\r\n" + sized, 200, `{"qty": 1}`},
		"Connection takes the type":    {order + "Connection: content-type\r\n" + sized, 415, ""},
		"a long list of Connection":    {order + "Connection: " + strings.Repeat("a, ", 200) + "x-tenant\r\n" + sized, 400, ""},
		"many headers":                 {order + strings.Repeat("A: b\r\n", 70) + "X_tenant: b\r\n" + sized, 400, ""},
		"the header twice":             {order + "X-Tenant: acme\r\n" + sized, 400, ""},
		"the type twice":               {order + "Content-Type: application/json\r\n" + sized, 400, ""},
		"chunks":                       {order + chunks + "5;a=b\r\n{\"qty\r\n5\r\n\": 1}\r\n0\r\nX-Tenant: b\r\n\r\n", 200, `{"qty": 1}`},
		"chunks of a byte":             {order + chunks + "1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", 400, ""},
		"no chunk":                     {note + chunks + "0\r\n\r\n", 200, ""},
		"a chunk without a type":       {note + chunks + "2\r\n10\r\n0\r\n\r\n", 415, ""},
		"a chunk of another type":      {note + "Content-Type: text/plain\r\n" + chunks + "2\r\n10\r\n0\r\n\r\n", 415, ""},
		"another body than that":       {"POST /ping HTTP/1.1\r\nHost: a\r\n" + chunks + "2\r\n10\r\n0\r\n\r\n", 415, ""},
		"a chunk that breaks off":      {order + chunks + "5\r\n{\"qty\r\nx\r\n", 400, ""},
		"expects a 100":                {order + "Expect: 100-continue\r\n" + sized, 200, `{"qty": 1}`},
		"expects a 100 for large data": {order + "Expect: 100-continue\r\nContent-Length: 2000000\r\n\r\n", 413, ""},
	} {
		reached := len(up.Requests())
		got := converse(t, s.Running().GatewayAddr(), c.request+"GET /orders/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		list := up.Requests()[reached:]
		switch {
		case len(got) == 0 || got[0] != c.want:
			t.Errorf("%s: got %v, want %d", name, got, c.want)
		case c.want == 200 && (len(got) != 2 || got[1] != 200 || len(list) != 2 || list[0].Body != c.body):
			t.Errorf("%s: got %v, and the upstream %+v; want it forwarded with its body, and the next one too", name, got, list)
		case c.want != 200 && (len(got) > 2 || len(list) != len(got)-1 || len(list) == 1 && list[0].Target != "/orders/1"):
			t.Errorf("%s: got %v, and the upstream %+v; want it refused, and the next one forwarded or the connection closed", name, got, list)
		}
	}
}

// Guarantee: a client that waits for a 100 gets one from the gateway where the body must be seen, in both modes, and none from the upstream
// beside it.
func TestContinueWhereTheBodyIsChecked(t *testing.T) {
	s := keygatetest.Start(t)
	up := keygatetest.NewUpstream(t)
	g := "/v1/gateways/" + calling(t, s, "POST", "/v1/gateways", `{"name":"g","upstream_url":"`+up.URL+`"}`)["gateway_id"].(string)
	calling(t, s, "PUT", g+"/spec", orders)
	for _, mode := range []string{"report", "enforce"} {
		calling(t, s, "PATCH", g, `{"validate":"`+mode+`"}`)
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", s.Running().GatewayAddr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(c)
		for _, want := range []int{100, 200} {
			text := `{"qty": 1}`
			if want == 100 {
				text = "POST /orders HTTP/1.1\r\nHost: a\r\nX-Tenant: acme\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 10\r\n\r\n"
			}
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != want {
				t.Errorf("%s: got %d, want %d", mode, resp.StatusCode, want)
			}
		}
	}
}

// Guarantee: over several nodes, a change of the mode or of the document is in force on each when the call returns, and each node's report
// has the requests of all.
func TestDocumentsOverSeveralNodes(t *testing.T) {
	c := startCluster(t, 2)
	up := keygatetest.NewUpstream(t)
	call := func(node int, method, path, body string) (record map[string]any) {
		t.Helper()
		awaittest.True(t, "the call is not refused with 503", func() bool {
			r := c.nodes[node].Call(method, path, c.operator, body)
			if r.Status == http.StatusServiceUnavailable {
				return false
			}
			if r.Status >= 300 || json.Unmarshal([]byte(r.Body), &record) != nil {
				t.Fatalf("%s %s: got %d %s", method, path, r.Status, r.Body)
			}
			return true
		})
		return record
	}
	g := "/v1/gateways/" + call(0, "POST", "/v1/gateways", `{"name":"g","upstream_url":"`+up.URL+`","validate":"report"}`)["gateway_id"].(string)
	call(1, "PUT", g+"/spec", orders)
	both := func(text string, want int) {
		t.Helper()
		for i, node := range c.nodes {
			if r := node.Through("", "POST", "/notes", "", text); r.Status != want {
				t.Errorf("node %d: %s: got %d %s, want %d", i, text, r.Status, r.Body, want)
			}
		}
	}
	both("9", 200)
	both("10", 200)
	for node := range c.nodes {
		awaittest.True(t, "the report of a node has the requests of both", func() bool {
			r := call(node, "GET", g+"/validation", "")
			return r["requests"] == 4.0 && r["refused"] == 2.0
		})
	}
	call(0, "PATCH", g, `{"validate":"enforce"}`)
	both("9", 200)
	both("10", 400)
	call(1, "PUT", g+"/spec", strings.Replace(orders, `"maximum": 9`, `"maximum": 10`, 1))
	both("10", 200)
	both("11", 400)
}

// converse sends requests over one connection, and returns the statuses of the responses until it is closed, without those of a 100.
func converse(t *testing.T, address, requests string) (statuses []int) {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(c, requests) }()
	for r := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return statuses
		}
		if resp.StatusCode == http.StatusContinue {
			continue // of the upstream, which expects it too
		}
		statuses = append(statuses, resp.StatusCode)
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return statuses
		}
	}
}
