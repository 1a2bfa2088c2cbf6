package statusbranch

import "berth/reconciler/gitrepo/object"

// statusDirs are the directories of berth/status that hold statuses (DESIGN §3).
func statusDirs() []string { return []string{"nodes", "platform", object.TenantsDir} }
