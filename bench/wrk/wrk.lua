-- Prints exact figures, in microseconds; wrk itself rounds them.
done = function(summary, latency)
  local e = summary.errors
  io.write(string.format("figures %.0f %.0f %.0f %.0f %.0f %.0f\n",
    summary.requests, summary.duration, e.connect + e.read + e.write + e.timeout + e.status,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
