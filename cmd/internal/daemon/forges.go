package daemon

import (
	"berth/webhooks/forge"
	"berth/webhooks/github"
)

// forges lists the forges that Berth knows, one line each.
func forges() []forge.Kind {
	return []forge.Kind{
		github.Kind(),
	}
}
