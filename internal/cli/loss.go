package cli

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// maxCounted bounds how many records are counted to tell what will be lost.
const maxCounted = 1000

// counted returns how many records there are, at most one more than maxCounted.
func counted[T any](lists ...iter.Seq2[T, error]) (n int64, err error) {
	for _, records := range lists {
		for _, err := range records {
			if err != nil {
				return 0, err
			}
			if n++; n > maxCounted {
				return n, nil
			}
		}
	}
	return n, nil
}

// amount returns n, which was counted up to maxCounted, with its noun.
func amount(n int64, one, many string) string {
	if n > maxCounted {
		return fmt.Sprintf("more than %d %s", maxCounted, many)
	}
	return terminal.NumberOf(n, one, many)
}

// lastDay returns how many requests there were in the last 24 hours.
func lastDay(ctx context.Context, api *client.Client, q client.TrafficQuery) (string, error) {
	q.Interval, q.Since = "1h", time.Now().Add(-24*time.Hour)
	rows, err := api.Traffic(ctx, q)
	if err != nil {
		return "", err
	}
	var n int64
	for i := range rows {
		n += rows[i].Requests
	}
	if n == 1 {
		return "1 request in the last 24 hours", nil
	}
	return strconv.FormatInt(n, 10) + " requests in the last 24 hours", nil
}

// lost describes a record for the command that is about to destroy it.
type lost struct {
	records []string // what is lost with it
	name    string   // to be typed to confirm; "" if y is enough
}

func lostWithGateway(ctx context.Context, api *client.Client, g *client.Gateway) (l lost, err error) {
	routes, err := counted(api.Routes(ctx, g.GatewayID, client.ListOptions{}))
	if err != nil {
		return l, err
	}
	keys, err := counted(api.Keys(ctx, client.KeyFilter{GatewayID: g.GatewayID, State: "active"}))
	if err != nil {
		return l, err
	}
	requests, err := lastDay(ctx, api, client.TrafficQuery{GatewayID: g.GatewayID})
	return lost{[]string{
		amount(routes, "route", "routes"),
		amount(keys, "key that is restricted to it and will be revoked", "keys that are restricted to it and will be revoked"), requests,
	}, g.Name}, err
}

func lostWithRoute(ctx context.Context, api *client.Client, r *client.Route) (lost, error) {
	requests, err := lastDay(ctx, api, client.TrafficQuery{GatewayID: r.GatewayID, RouteID: r.RouteID})
	return lost{records: []string{requests}}, err
}

func lostWithKey(ctx context.Context, api *client.Client, k *client.Key) (l lost, err error) {
	requests, err := lastDay(ctx, api, client.TrafficQuery{KeyID: k.KeyID})
	if owner := str(k.Owner); owner != "" {
		l.records = []string{"its owner is " + owner}
	}
	l.records = append(l.records, requests)
	return l, err
}

func lostWithWebhook(ctx context.Context, api *client.Client, w *client.Webhook) (lost, error) {
	n, err := counted(
		api.Deliveries(ctx, client.DeliveryFilter{WebhookID: w.WebhookID, State: "pending"}),
		api.Deliveries(ctx, client.DeliveryFilter{WebhookID: w.WebhookID, State: "retry_scheduled"}))
	return lost{records: []string{amount(n, "pending delivery", "pending deliveries")}}, err
}

// The labels name records in sentences.
func gatewayLabel(g *client.Gateway) string { return "gateway " + withID(g.Name, g.GatewayID) }
func keyLabel(k *client.Key) string         { return "key " + withID(k.Name, k.KeyID) }
func webhookLabel(w *client.Webhook) string { return "webhook " + withID(w.URL, w.WebhookID) }
func routeLabel(r *client.Route) string {
	return "route " + withID(strings.Join(r.Methods, ",")+" "+r.Path, r.RouteID)
}
