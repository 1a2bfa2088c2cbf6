package api

import (
	"net/http"

	"berth/reconciler/queueing"
)

// readUsage answers what the project of the path used of its units, until now (requirement A13).
func readUsage(q *queueing.Service, l *liveCall) (answer, *failure) {
	live, fail := l.wantsLive()
	if fail != nil {
		return answer{}, fail
	}
	used, err := q.Usage(l.Context(), l.caller, live)
	return answered(http.StatusOK, used, err)
}
