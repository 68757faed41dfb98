package adminapi_test

import (
	"net/http"
	"strings"
	"testing"
)

// newDenial denies tokens of a subject.
func (s *server) newDenial(key, issuerID string) *response {
	s.t.Helper()
	return s.do(request{method: "POST", path: "/v1/issuers/" + issuerID + "/denials", key: key, body: map[string]any{"subject": "ada", "reason": "stolen"}}).want(201)
}

// Guarantee: a denial is created, listed, read and lifted with the fields of identity.md, section 2; it has exactly one of
// subject, jti and issued_before, and ends in the future.
func TestDenialIsCreatedListedAndLifted(t *testing.T) {
	s := start(t)
	issuerID := s.newIssuer("", "login").text("issuer_id")
	path := "/v1/issuers/" + issuerID + "/denials"
	created := s.newDenial("", issuerID)
	wantFields(t, created.json, "denial_id issuer_id subject jti issued_before until reason created_at")
	one := path + "/" + created.text("denial_id")
	if created.header.Get("Location") != one || created.text("subject") != "ada" || created.json["jti"] != nil || created.json["issued_before"] != nil || created.text("reason") != "stolen" {
		t.Errorf("got %v\n%s", created.header, created.raw)
	}
	s.do(request{method: "POST", path: path, body: map[string]any{"jti": "t1"}}).want(201)
	timed := s.do(request{method: "POST", path: path, body: map[string]any{"issued_before": "2000-01-01", "until": "9999-01-01T01:00:00+01:00"}}).want(201)
	if timed.text("issued_before") != "2000-01-01T00:00:00Z" || timed.text("until") != "9999-01-01T00:00:00Z" {
		t.Errorf("got %s", timed.raw)
	}
	for query, want := range map[string]int{"": 3, "?subject=ada": 1, "?subject=bob": 0, "?jti=t1": 1, "?limit=2": 2} {
		if got := s.get(path + query).want(200).data(); len(got) != want {
			t.Errorf("%q: got %d denials, want %d", query, len(got), want)
		}
	}
	if got := s.get(one).want(200); got.raw != created.raw {
		t.Errorf("got %s, want %s", got.raw, created.raw)
	}
	for _, wrong := range []struct {
		body  map[string]any
		field string
	}{
		{map[string]any{}, "subject"}, {map[string]any{"subject": "u", "jti": "t"}, "subject"}, {map[string]any{"subject": "u", "until": "2000-01-01"}, "until"},
		{map[string]any{"issued_before": "9999-01-01"}, "issued_before"}, {map[string]any{"jti": "t", "until": "soon"}, "until"}, {map[string]any{"jti": "t", "subjects": "u"}, "subjects"},
	} {
		s.do(request{method: "POST", path: path, body: wrong.body}).refused(http.StatusUnprocessableEntity, "validation_failed", wrong.field)
	}
	s.do(request{method: "DELETE", path: one}).want(200)
	s.get(one).refused(404, "not_found", "")
	if audits := s.get("/v1/audit-log?kind=management").want(200).raw; !strings.Contains(audits, "denial.create") || !strings.Contains(audits, "denial.delete") {
		t.Errorf("the audit log has no records of the denial:\n%s", audits)
	}
}
