// Package sendertest helps tests that take deliveries from a queue without a sender.
package sendertest

import (
	"context"

	"github.com/keygate/keygate/internal/webhook/sender"
)

// ClaimAll makes claim c for every endpoint with due deliveries, of each for at most the given
// number.
func ClaimAll(ctx context.Context, q sender.Queue, c sender.Claim, each int) ([]sender.Job, error) {
	for after := ""; ; {
		found, last, err := q.AllDue(ctx, after, 100, c.Now)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			c.Wants = append(c.Wants, sender.Want{WebhookID: d.WebhookID, Limit: each})
		}
		if last == "" {
			return q.ClaimDeliveries(ctx, c)
		}
		after = last
	}
}
