package admit

import (
	"strings"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/snapshot"
)

// whyInvalid returns what is wrong with the key of a request, for its access record alone: the response to the caller is
// always the same. secret is what credential returned, and no active key. The result depends on the request and not on
// the keys that exist. whyInvalid does not allocate.
func (d *decision) whyInvalid(g *snapshot.Gateway, secret string) accesslog.Reason {
	switch {
	case d.verdict.KeyPrefix != "":
		return accesslog.UnknownKey
	case secret == "":
		return d.unread(g)
	case apikey.HasTag(secret):
		return accesslog.MistypedKey
	default:
		return accesslog.NotAKey
	}
}

// unread returns where a request without a key has a string that begins like a key, or accesslog.NoKey.
func (d *decision) unread(g *snapshot.Gateway) accesslog.Reason {
	if holdsKey(d.req.Authorization) {
		if g.ForwardsAuthorization {
			return accesslog.KeyInOtherHeader
		}
		return accesslog.KeyWithoutScheme
	}
	if d.req.Header == nil {
		return accesslog.NoKey
	}
	for _, name := range [...]string{"X-API-Key", "Api-Key", "ApiKey", "X-Auth-Token", "X-Access-Token", "X-Key", "X-Authorization", "Proxy-Authorization"} {
		if value, n := d.req.Header.HeaderValue(name); n > 0 && holdsKey(value) {
			return accesslog.KeyInOtherHeader
		}
	}
	return accesslog.NoKey
}

// holdsKey reports whether the last word of a header's value begins like a key.
func holdsKey(value string) bool {
	value = strings.TrimRight(value, " \t")
	return apikey.HasTag(value[strings.LastIndexAny(value, " \t")+1:])
}
