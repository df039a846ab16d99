/* SPDX-License-Identifier: BSD-2-Clause
 *
 * The daemon of root. It acts for all users of the mount, so it must be able to do to any file of the
 * backing what its owner could; everything else that root can do is given up for good, before the
 * first thread is started:
 *
 *   capabilities   all but those of the table below; also from the bounding set
 *   no_new_privs   nothing it might start can win them back. It mounts and unmounts by itself;
 *                  fusermount3, where it needs that all the same, is looked for in the system's PATH
 *   core dumps     off (but for -d): its memory holds files of all users
 *
 * CAP_SYS_ADMIN stays, and is much: mount and umount, trusted.* attributes.
 *
 * The daemon of a user has no capabilities. It needs fusermount3 (setuid) until it is mounted and when
 * it ends, so no_new_privs is not for it; and its memory holds what the user may read.
 *
 * Not made to be installed setuid or with file capabilities: options name any path to read and write.
 */
#include <config.h>

#include "tools/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

static const uint8_t privileges_kept[] = {
	CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID, CAP_MKNOD,
	CAP_LINUX_IMMUTABLE, /* chattr +i, +a */
	CAP_SETFCAP,         /* security.capability */
	CAP_SYS_RESOURCE,    /* reserved blocks, quotas: as root has without us */
	CAP_SYS_ADMIN,
};

int privileges_check(void)
{
	if (!getauxval(AT_SECURE))
		return 0;
	log_error("gildfs", "the program is setuid, setgid or has file capabilities: take them off it, "
		  "users mount through fusermount3");
	return -EPERM;
}

static int privileges_drop_capabilities(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	uint32_t kept[2] = {0, 0};

	for (size_t i = 0; i < sizeof(privileges_kept); i++)
		kept[privileges_kept[i] / 32] |= 1u << privileges_kept[i] % 32;
	for (unsigned cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (cap >= 64 || !(kept[cap / 32] & 1u << cap % 32))
			(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0); /* not without CAP_SETPCAP */
	if (syscall(SYS_capget, &head, data) < 0)
		return -errno;
	for (int i = 0; i < 2; i++) {
		data[i].permitted &= kept[i];
		data[i].effective = data[i].permitted;
		data[i].inheritable = 0;
	}
	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

int privileges_drop(bool debug)
{
	int rc;

	if (geteuid() != 0)
		return 0;
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	rc = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : privileges_drop_capabilities();
	if (rc == 0 && !debug && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		rc = -errno;
	if (rc < 0)
		log_error("gildfs", "privileges cannot be given up: %s", strerror(-rc));
	return rc;
}
