package control

import "context"

type urgentKey struct{}

// Urgent returns the context of an operation that takes rights away. A store lets its transaction pass others that
// wait, so that a revocation does not wait for a queue of changes.
func Urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgentKey{}, true) }

// IsUrgent reports whether the transaction of an operation should pass others that wait.
func IsUrgent(ctx context.Context) bool { return ctx.Value(urgentKey{}) != nil }
