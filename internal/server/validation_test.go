package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keygate/keygate/internal/keygatetest"
)

// orders is a document with what requests can do wrong.
const orders = `{"openapi": "3.1.0", "info": {"title": "orders", "version": "1"}, "paths": {
	"/orders": {"post": {"x-keygate-auth": "none",
		"parameters": [{"in": "query", "name": "dry_run", "schema": {"type": "boolean"}}, {"in": "header", "name": "X-Tenant", "required": true, "schema": {"type": "string", "pattern": "^[a-z]+$"}}],
		"requestBody": {"required": true, "content": {
			"application/json": {"schema": {"type": "object", "required": ["qty"], "properties": {"qty": {"type": "integer", "minimum": 1}}, "additionalProperties": false}},
			"application/x-www-form-urlencoded": {"schema": {"type": "object", "properties": {"qty": {"type": "integer"}}}}}}}},
	"/orders/{id}": {"get": {"x-keygate-auth": "none", "parameters": [{"in": "path", "name": "id", "required": true, "schema": {"type": "integer"}}]}},
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
		)
	}
	return append(
		list,
		attempt{"POST", "/orders?dry_run=yes", "application/json", `{"qty": 1}`, false, tenant, 400},
		attempt{"POST", "/orders?dry_run=true&dry_run=true", "application/json", `{"qty": 1}`, false, tenant, 400},
		attempt{"POST", "/orders?dry_run=true&api_key=x", "application/json", `{"qty": 1}`, false, tenant, 200},
		attempt{"POST", "/orders", "application/json", `{"qty": 1}`, false, nil, 400},
		attempt{"POST", "/orders", "", "", false, tenant, 400},
		attempt{"GET", "/orders/12", "", "", false, nil, 200},
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
// exactly the requests that enforce refuses; a request that passes reaches the upstream with its whole body; and a refusal says what must
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
	_, _, data := report()
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
			if !strings.Contains(body, `"code":"schema_mismatch"`) || !strings.Contains(body, `"errors":[{"message":"`) || strings.Contains(body, "twelve") {
				t.Errorf("%s, enforce, %d: got %s, want what must be otherwise", version, i, body)
			}
		}
	})
	calling(t, s, "PATCH", g, `{"validate":null}`)
	overBoth(t, func(version string, transport *http.Transport) {
		for i, a := range attempts() {
			if status, body := a.make(t, transport, s.GatewayURL()); status != 200 {
				t.Errorf("%s, off, %d: got %d %s, want it forwarded", version, i, status, body)
			}
		}
	})
}
