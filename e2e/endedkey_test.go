package e2e

import (
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
)

// Guarantee: the request log and the audit log name a key that was revoked or rotated out,
// also after a restart. The caller of a revoked key gets the same response as with an unknown
// key. Another account's revoked key reveals nothing.
func TestEndedKeysAreNamed(t *testing.T) {
	up := newRecordingUpstream(t)
	s := startServer(t, "--upstream-allow-network", "127.0.0.0/8")
	s.newGateway(up.URL, map[string]any{"hostname": "mine.example"})
	revokedID, revoked := s.newKey(nil)
	s.call(http.StatusOK, "DELETE", "/v1/keys/"+revokedID, nil)
	rotatedID, rotated := s.newKey(nil)
	s.call(http.StatusCreated, "POST", "/v1/keys/"+rotatedID+"/rotate", map[string]any{"overlap_days": 0})
	accountID, accountKey := s.newKey(map[string]any{"level": "account"})
	s.call(http.StatusOK, "DELETE", "/v1/keys/"+accountID, nil)

	other := s.offline("account", "create", "--name", "other", "--plan", "starter", "--host", "*.other.example")
	s.awaitKey(other, "/v1/account")
	theirs := s.callAs(other, http.StatusCreated, "POST", "/v1/keys", map[string]any{"name": "k", "scope": "read"})
	s.callAs(other, http.StatusOK, "DELETE", "/v1/keys/"+theirs.field(t, "key_id"), nil)

	for _, when := range []string{"at first", "after a restart"} {
		t.Run(when, func(t *testing.T) {
			unknown := s.mustSend(http.StatusUnauthorized, "GET", "/x", theirs.field(t, "key"), "Host: mine.example")
			checkEnded(t, s, unknown, "", "is unknown")
			r := s.mustSend(http.StatusUnauthorized, "GET", "/x", revoked, "Host: mine.example")
			checkEnded(t, s, r, revokedID, "had been revoked at 2")
			if got, want := withoutID(r), withoutID(unknown); got != want {
				t.Errorf("revoked key: got response %s, want that of an unknown key, %s", got, want)
			}
			r = s.mustSend(http.StatusUnauthorized, "GET", "/x", rotated, "Host: mine.example")
			checkEnded(t, s, r, rotatedID, "had expired at 2")
			checkAudited(t, s, s.callAs(accountKey, http.StatusUnauthorized, "GET", "/v1/keys", nil), accountID)
		})
		s.restart(syscall.SIGTERM)
	}
}

// withoutID returns the body of r without the identifier of the request.
func withoutID(r response) string {
	return strings.ReplaceAll(string(r.body), r.header.Get("X-Request-Id"), "")
}

// checkEnded checks what the request log and the audit log say about a refused request.
func checkEnded(t *testing.T, s *server, refused response, keyID, says string) {
	t.Helper()
	r := s.call(http.StatusOK, "GET", "/v1/requests/"+refused.header.Get("X-Request-Id"), nil).json(t)
	got, _ := r["key_id"].(string)
	decision, _ := r["decision"].(map[string]any)
	message, _ := decision["message"].(string)
	if got != keyID || decision["code"] != refused.json(t)["code"] || !strings.Contains(message, says) {
		t.Errorf("got request %v, want key_id %q and the message to contain %q", r, keyID, says)
	}
	checkAudited(t, s, refused, keyID)
}

// checkAudited checks the key of the audit record of a refused request.
func checkAudited(t *testing.T, s *server, refused response, keyID string) {
	t.Helper()
	query := "?kind=authentication&limit=100&outcome=" + url.QueryEscape(refused.field(t, "code"))
	list, _ := s.call(http.StatusOK, "GET", "/v1/audit-log"+query, nil).json(t)["data"].([]any)
	for _, one := range list {
		record, _ := one.(map[string]any)
		if record["request_id"] != refused.header.Get("X-Request-Id") {
			continue
		}
		if got, _ := record["key_id"].(string); got != keyID {
			t.Errorf("got audit record %v, want key_id %q", record, keyID)
		}
		return
	}
	t.Errorf("the audit log has no record of request %s", refused.header.Get("X-Request-Id"))
}
