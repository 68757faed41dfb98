package demo

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
)

// tour holds the values that the printed commands contain.
type tour struct {
	program, gateway, host, admin, ops, adminKey, gatewayID, keyPrefix, key, spec, upstream string
}

// print prints the first commands to try. With two events after it, it fits a terminal of 24 lines.
func (t *tour) print(w io.Writer) error {
	_, err := fmt.Fprintf(w, `Dashboard: %[3]s/
Sign in with the key in %[4]s

In another terminal, paste:
export KEY=%[2]s
export KEYGATE_URL=%[3]s
export KEYGATE_API_KEY=$(cat %[4]s)

# Call the service through the gateway: with a key 200, without 401.
curl -i -H "Authorization: Bearer $KEY" %[1]s/orders
curl -i %[1]s/orders

# Exceed a limit of 5 requests a minute: the sixth is 429. Then ask why.
for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%%{http_code}\n' \
  -H "Authorization: Bearer $KEY" %[1]s/orders/1; done
%[5]s explain --key-id %[6]s
%[5]s traffic --group-by route

More: %[5]s demo --tour. Ctrl-C stops the demo and removes its data.
Your events, as the demo's own webhook receiver gets them:
`, t.gateway, t.key, t.admin, t.adminKey, t.program, t.keyPrefix)
	return err
}

// fullTour is the format of the text that printAll prints.
const fullTour = `Keygate is running, with a sample service behind it.

  dashboard       %[3]s/
                  sign in with the key in
                  %[7]s
  data plane      %[1]s
                  %[2]s
  management API  %[3]s
  operators       %[4]s/readyz, %[4]s/metrics
  sample service  %[5]s

Paste these into another terminal, one after the other.

# Used by all commands: a caller's key, your key for the management API, and the
# gateway.
export KEY=%[6]s
export KEYGATE_URL=%[3]s
export KEYGATE_API_KEY=$(cat %[7]s)
export KEYGATE_GATEWAY=%[9]s

# Call the service through the gateway.
curl -i -H "Authorization: Bearer $KEY" %[1]s/orders

# Show what the service receives about the caller.
curl -H "Authorization: Bearer $KEY" %[1]s/whoami

# Without a key: 401. A public route needs no key: 200.
curl -i %[1]s/orders
curl -i %[1]s/health

# A path that is not in the service's OpenAPI document: 404.
# A method that is not: 405.
curl -i -H "Authorization: Bearer $KEY" %[1]s/secrets
curl -i -X PATCH -H "Authorization: Bearer $KEY" %[1]s/orders

# Exceed a limit: this route allows 5 requests a minute, so the sixth is 429.
for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%%{http_code}\n' \
  -H "Authorization: Bearer $KEY" %[1]s/orders/1; done

# The audit log, the traffic report, and the refused requests.
%[8]s audit-log
%[8]s traffic --group-by route
%[8]s explain

# Why the last of them was refused; and the current level of every limit.
%[8]s explain $(%[8]s explain \
  --key-id %[11]s --limit 1 -o id)
%[8]s limits show

# Check that no record is missing: each of these counters is 0, and the hash
# chain of the audit log is intact.
curl -s %[4]s/metrics | grep '_lost_total '
%[8]s audit-log verify --data-dir %[12]s

# List what there is.
%[8]s gateways list
%[8]s routes list
%[8]s keys list

# Push the service's document again (nothing changes), and list the revisions.
%[8]s spec push %[10]s
%[8]s spec revisions

# Create a key that may only read orders, and replace the first key with a new
# one. Both are valid for a week.
%[8]s keys create --name reader --scope read:orders -o json
%[8]s keys rotate %[11]s --overlap-days 7

# Revoke the first key: the next call with it is 401.
%[8]s keys revoke %[11]s --yes
curl -i -H "Authorization: Bearer $KEY" %[1]s/orders

# Events, and their deliveries to the webhook receiver that prints the lines
# below.
%[8]s events list
%[8]s webhooks list
%[8]s deliveries list

# Receive events in another terminal. --forward-to URL forwards them to your
# program.
%[8]s webhooks listen

Ctrl-C stops the demo and removes its data.

Events that the demo's own webhook receiver got, with a verified signature:
`

// printAll prints commands for everything that Keygate does.
func (t *tour) printAll(w io.Writer) error {
	_, err := fmt.Fprintf(w, fullTour, t.gateway, t.byName(), t.admin, t.ops, t.upstream, t.key, t.adminKey, t.program, t.gatewayID, t.spec, t.keyPrefix, filepath.Dir(t.adminKey))
	return err
}

// byName returns the data plane's URL with the gateway's hostname.
func (t *tour) byName() string {
	scheme, address, _ := strings.Cut(t.gateway, "://")
	_, port, _ := net.SplitHostPort(address) // a listener's address always has a port
	return scheme + "://" + net.JoinHostPort(t.host, port)
}
