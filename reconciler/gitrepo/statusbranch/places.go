package statusbranch

import "berth/reconciler/gitrepo/object"

// statusDirs returns the directories of berth/status with statuses (DESIGN §3).
func statusDirs() []string { return []string{"nodes", "platform", object.TenantsDir} }
