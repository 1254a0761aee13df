package role

import "time"

// loadInterval is how often a control plane is told of the load: it starts work between two reports, and knows of that
// itself. What others have started here is news to it.
const loadInterval = 200 * time.Millisecond

// load is what a link has told last.
type load struct{ running, waiting uint32 }

// reportLoads tells the control plane of changes until the link ends.
func (l *link) reportLoads(ended <-chan struct{}) {
	due := time.NewTimer(l.heartbeat)
	defer due.Stop()
	for {
		select {
		case <-due.C:
			due.Reset(l.reportLoad())
		case <-ended:
			return
		}
	}
}

// reportLoad tells what has changed since the last report, and returns when the next one is due: soon while something runs
// that the link has started, or the peer believes so of others; else with the heartbeat.
func (l *link) reportLoad() time.Duration {
	reported := l.host.load()
	now := load{reported.GetRunning(), reported.GetWaiting()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now != l.told && !l.hasEnded {
		l.told = now
		l.pump.send(loadFrame(reported))
	}
	if len(l.executions) > 0 || l.told != (load{}) {
		return min(l.heartbeat, loadInterval)
	}
	return l.heartbeat
}
