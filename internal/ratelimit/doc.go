// Package ratelimit defines rate limits and decides by them (specification, Limits;
// contract, 4.3).
//
// There are four kinds of limit:
//
//   - A Bucket is a token bucket. It is decided by GCRA (generic cell rate algorithm): its
//     whole state is one word, the time at which the bucket will be full again, in units
//     that Params defines. It is changed by compare-and-swap.
//   - A Daily is a cap on the requests of one UTC day. Its state is one word too. The
//     Reserver reserves ranges of the cap in the store ahead of use, so that no crash lets
//     more than the cap pass.
//   - A Quota is a cap on the units of a calendar window. The QuotaKeeper reserves ranges of it in the
//     store ahead of use, as the Reserver does.
//   - Slots bound the requests in flight. Each request gives its slot back when it ends. With several
//     nodes, the SlotKeeper claims slots in the store ahead of use.
//
// Each exists once for all callers, or once for each key (Buckets, Dailies).
//
//	Config, Rate ──Compile──► Params ─┐
//	                                  ├─► Limit ─┐             ┌─► Status ──► header fields
//	Bucket, or Buckets for each key ──┘          ├─► Charge ───┤ Decide
//	Daily, or Dailies for each key ─────► Limit ─┘  of amounts └─► Settle, or Release
//	  ▲ reserved ranges
//	Reserver ◄──► DailyStore
//
// A Charge is what one request is charged: the limits that apply to it, each with an amount, which is 1 for
// limits of requests. Limiter.Decide reads all the limits, then charges all of them or none. It does not
// allocate. It takes a lock, for nanoseconds, only where a limit that was charged may have to be refunded
// because another one is nearly used up. What it has taken is kept by Charge.Settle, or given back by
// Limiter.Release.
//
// Guarantees, whatever runs concurrently:
//
//   - Of requests that come together, none is refused while each of its limits has its amount left.
//   - In every window w at most capacity + w×rate pass a bucket.
//   - At most the cap pass a Daily in a UTC day, through crashes, restarts and steps of the
//     wall clock.
//   - No change of a limit, no sweep and no publication of a snapshot refills a bucket.
package ratelimit
