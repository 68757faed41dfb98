package repository

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
)

// VerifyHook reports whether a server of Git sent a push hook: whether its headers prove that it
// knows the secret. These are X-Hub-Signature-256 (GitHub: "sha256=" and the HMAC-SHA256 of the body
// in hexadecimal), X-Gitea-Signature (Gitea, Forgejo: the same without "sha256=") and X-Gitlab-Token
// (GitLab: the secret itself). There must be at least one of these headers, each at most once, and
// each must be right. An empty secret is never right.
func VerifyHook(h http.Header, body []byte, secret string) bool {
	if secret == "" {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	signature := hex.EncodeToString(mac.Sum(nil))
	found, right := false, true
	for _, c := range []struct{ name, want string }{
		{"X-Hub-Signature-256", "sha256=" + signature},
		{"X-Gitea-Signature", signature},
		{"X-Gitlab-Token", secret},
	} {
		values := h.Values(c.name)
		if len(values) == 0 {
			continue
		}
		found = true
		right = right && len(values) == 1 && subtle.ConstantTimeCompare([]byte(values[0]), []byte(c.want)) == 1
	}
	return found && right
}
