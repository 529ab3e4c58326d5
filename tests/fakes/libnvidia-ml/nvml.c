/* NVML without a driver: the calls that the agent makes, answered from a text file.
 *
 * The real pynvml is tested over this library, so the names, the layouts and the codes are NVML's.
 * The file is named by CARDWISE_FAKE_NVML and read anew at each look at the machine (nvmlInit,
 * nvmlDeviceGetCount, nvmlEventSetWait), so that a test can change a running machine. As with a
 * real driver, the list of cards is fixed when the library is opened: a card that goes from the
 * file meanwhile is lost, and one that comes is not seen.
 *
 * Lines, one fact each; what is not said of a card is NOT_SUPPORTED:
 *
 *   driver VERSION            init CODE                error FUNCTION CODE
 *   ancestor A B LEVEL        of the cards A < B, by index
 *   card UUID                 begins a card; the rest is about it
 *   name TEXT                 memory BYTES             bus ADDRESS
 *   numa MASK                 hexadecimal, of the nodes near it
 *   mig 0|1                   events MASK              hexadecimal, of supported types
 *   link N gpu|switch|untold ADDRESS                   link N down
 *   error FUNCTION CODE       FUNCTION may be *: every question about this card
 *   xid SERIAL NUMBER         an event, told once, if it comes while the library is open;
 *                             the serials of a card grow
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, TIMEOUT = 10,
       GPU_IS_LOST = 15, UNKNOWN = 999 };
enum { CARDS = 64, LINKS = 36, ERRORS = 16, XIDS = 64, TEXT = 96 };
enum { DOWN, GPU, SWITCH, UNTOLD };
enum { XID_CRITICAL = 8 };

struct error { char function[64]; int code; };
struct link { int told, kind; char address[32]; };
struct xid { unsigned serial; unsigned long long number; };
struct card {
    char uuid[TEXT], name[TEXT], bus[32];
    long long memory;
    int has_memory, has_numa, mig, links, errors, xids;
    unsigned long long numa, events;
    struct link link[LINKS];
    struct error error[ERRORS];
    struct xid xid[XIDS];
    int registered;
    unsigned delivered;
};
struct machine {
    char driver[TEXT];
    int init, cards, errors;
    struct error error[ERRORS];
    unsigned char ancestor[CARDS][CARDS];
    struct card card[CARDS];
};

typedef struct card *device_t;
struct memory { unsigned long long total, free, used; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; };
struct event { device_t device; unsigned long long type, data; unsigned gpu, compute; };

static struct machine now, read_anew;
static int opened, sets;

static void add_error(struct error *list, int *count, const char *rest) {
    if (*count < ERRORS
        && sscanf(rest, "%63s %d", list[*count].function, &list[*count].code) == 2)
        ++*count;
}

static void about_card(struct card *card, const char *key, const char *rest) {
    unsigned n;
    char kind[16] = "", address[32] = "";
    if (!strcmp(key, "name"))
        snprintf(card->name, TEXT, "%s", rest);
    else if (!strcmp(key, "memory"))
        card->has_memory = 1, card->memory = atoll(rest);
    else if (!strcmp(key, "bus"))
        snprintf(card->bus, sizeof card->bus, "%.31s", rest);
    else if (!strcmp(key, "numa"))
        card->has_numa = 1, card->numa = strtoull(rest, NULL, 16);
    else if (!strcmp(key, "mig"))
        card->mig = atoi(rest);
    else if (!strcmp(key, "events"))
        card->events = strtoull(rest, NULL, 16);
    else if (!strcmp(key, "error"))
        add_error(card->error, &card->errors, rest);
    else if (!strcmp(key, "xid") && card->xids < XIDS) {
        struct xid *xid = &card->xid[card->xids];
        card->xids += sscanf(rest, "%u %llu", &xid->serial, &xid->number) == 2;
    } else if (!strcmp(key, "link") && sscanf(rest, "%u %15s %31s", &n, kind, address) >= 2
               && n < LINKS) {
        struct link *link = &card->link[n];
        card->links = link->told = 1;
        link->kind = !strcmp(kind, "gpu") ? GPU : !strcmp(kind, "switch") ? SWITCH
                   : !strcmp(kind, "untold") ? UNTOLD : DOWN;
        strcpy(link->address, address);
    }
}

static void read_machine(struct machine *machine) {
    char line[512], key[32];
    struct card *card = NULL;
    const char *path = getenv("CARDWISE_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    memset(machine, 0, sizeof *machine);
    machine->init = file ? OK : UNKNOWN;
    while (file && fgets(line, sizeof line, file)) {
        int at = 0, a, b, level;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%31s %n", key, &at) != 1)
            continue;
        const char *rest = line + at;
        if (!strcmp(key, "card") && machine->cards < CARDS) {
            card = &machine->card[machine->cards++];
            card->mig = -1;
            snprintf(card->uuid, TEXT, "%.95s", rest);
        } else if (card)
            about_card(card, key, rest);
        else if (!strcmp(key, "driver"))
            snprintf(machine->driver, TEXT, "%.95s", rest);
        else if (!strcmp(key, "init"))
            machine->init = atoi(rest);
        else if (!strcmp(key, "error"))
            add_error(machine->error, &machine->errors, rest);
        else if (!strcmp(key, "ancestor") && sscanf(rest, "%d %d %d", &a, &b, &level) == 3)
            machine->ancestor[a][b] = machine->ancestor[b][a] = level + 1;
    }
    if (file)
        fclose(file);
}

/* What the file says now, about the cards that there were when the library was opened. */
static void look(void) {
    read_machine(&read_anew);
    strcpy(now.driver, read_anew.driver);
    memcpy(now.error, read_anew.error, sizeof now.error);
    now.errors = read_anew.errors;
    for (int i = 0; i < now.cards; i++) {
        struct card *card = &now.card[i], *found = NULL;
        int registered = card->registered;
        unsigned delivered = card->delivered;
        for (int j = 0; j < read_anew.cards; j++)
            if (!strcmp(read_anew.card[j].uuid, card->uuid))
                found = &read_anew.card[j];
        if (found)
            *card = *found;
        else {
            card->errors = 1;
            card->error[0] = (struct error){"*", GPU_IS_LOST};
        }
        card->registered = registered;
        card->delivered = delivered;
    }
}

static int refused(const struct error *list, int count, const char *function) {
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i].function, function) || !strcmp(list[i].function, "*"))
            return list[i].code;
    return OK;
}

#define ASK_LIBRARY() do { \
    if (!opened) return UNINITIALIZED; \
    int code = refused(now.error, now.errors, __func__); \
    if (code) return code; } while (0)
#define ASK(card) do { \
    ASK_LIBRARY(); \
    int told = refused((card)->error, (card)->errors, __func__); \
    if (told) return told; } while (0)

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    read_machine(&now);
    if (now.init)
        return now.init;
    for (int i = 0; i < now.cards; i++)
        for (int j = 0; j < now.card[i].xids; j++)
            now.card[i].delivered = now.card[i].xid[j].serial;
    opened++;
    return OK;
}

int nvmlShutdown(void) {
    if (!opened)
        return UNINITIALIZED;
    opened--;
    return OK;
}

const char *nvmlErrorString(int code) {
    static char text[32];
    snprintf(text, sizeof text, "code %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    ASK_LIBRARY();
    snprintf(text, size, "%s", now.driver);
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    if (opened)
        look();
    ASK_LIBRARY();
    *count = now.cards;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *card) {
    ASK_LIBRARY();
    if (index >= (unsigned)now.cards)
        return INVALID_ARGUMENT;
    ASK(&now.card[index]);
    *card = &now.card[index];
    return OK;
}

int nvmlDeviceGetUUID(device_t card, char *text, unsigned size) {
    ASK(card);
    snprintf(text, size, "%s", card->uuid);
    return OK;
}

int nvmlDeviceGetName(device_t card, char *text, unsigned size) {
    ASK(card);
    if (!*card->name)
        return NOT_SUPPORTED;
    snprintf(text, size, "%s", card->name);
    return OK;
}

int nvmlDeviceGetMemoryInfo(device_t card, struct memory *memory) {
    ASK(card);
    if (!card->has_memory)
        return NOT_SUPPORTED;
    memory->total = memory->free = card->memory;
    memory->used = 0;
    return OK;
}

static void fill(struct pci *pci, const char *address) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->address, sizeof pci->address, "%.31s", address);
    snprintf(pci->legacy, sizeof pci->legacy, "%.12s", strlen(address) > 4 ? address + 4 : "");
    sscanf(address, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
}

int nvmlDeviceGetPciInfo_v3(device_t card, struct pci *pci) {
    ASK(card);
    if (!*card->bus)
        return NOT_SUPPORTED;
    fill(pci, card->bus);
    return OK;
}

int nvmlDeviceGetMemoryAffinity(device_t card, unsigned size, unsigned long *nodes, int scope) {
    (void)scope;
    ASK(card);
    if (!card->has_numa)
        return NOT_SUPPORTED;
    memset(nodes, 0, size * sizeof *nodes);
    nodes[0] = card->numa;
    return OK;
}

int nvmlDeviceGetMigMode(device_t card, unsigned *current, unsigned *pending) {
    ASK(card);
    if (card->mig < 0)
        return NOT_SUPPORTED;
    *current = *pending = card->mig;
    return OK;
}

int nvmlDeviceGetTopologyCommonAncestor(device_t one, device_t other, int *level) {
    ASK(one);
    int code = refused(other->error, other->errors, __func__);
    if (code)
        return code;
    int told = now.ancestor[one - now.card][other - now.card];
    *level = told - 1;
    return told ? OK : NOT_SUPPORTED;
}

static int end_of(device_t card, unsigned n) {
    if (!card->links)
        return NOT_SUPPORTED;
    return n < LINKS && card->link[n].told ? OK : INVALID_ARGUMENT;
}

int nvmlDeviceGetNvLinkState(device_t card, unsigned n, unsigned *active) {
    ASK(card);
    int code = end_of(card, n);
    if (!code)
        *active = card->link[n].kind != DOWN;
    return code;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(device_t card, unsigned n, int *kind) {
    ASK(card);
    int code = end_of(card, n);
    if (code || card->link[n].kind == DOWN || card->link[n].kind == UNTOLD)
        return code ? code : NOT_SUPPORTED;
    *kind = card->link[n].kind == SWITCH ? 2 : 0;
    return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t card, unsigned n, struct pci *pci) {
    ASK(card);
    int code = end_of(card, n);
    if (code || card->link[n].kind == DOWN)
        return code ? code : NOT_SUPPORTED;
    fill(pci, card->link[n].address);
    return OK;
}

int nvmlEventSetCreate(void **set) {
    ASK_LIBRARY();
    sets++;
    *set = &sets;
    return OK;
}

int nvmlEventSetFree(void *set) {
    if (set != &sets || sets == 0)
        return INVALID_ARGUMENT;
    sets--;
    return OK;
}

int nvmlDeviceGetSupportedEventTypes(device_t card, unsigned long long *types) {
    ASK(card);
    *types = card->events;
    return OK;
}

int nvmlDeviceRegisterEvents(device_t card, unsigned long long types, void *set) {
    ASK(card);
    if (set != &sets)
        return INVALID_ARGUMENT;
    if (!types || types & ~card->events)
        return NOT_SUPPORTED;
    card->registered = 1;
    return OK;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned milliseconds) {
    (void)milliseconds;
    if (opened)
        look();
    ASK_LIBRARY();
    if (set != &sets)
        return INVALID_ARGUMENT;
    for (int i = 0; i < now.cards; i++) {
        struct card *card = &now.card[i];
        for (int j = 0; card->registered && j < card->xids; j++)
            if (card->xid[j].serial > card->delivered) {
                card->delivered = card->xid[j].serial;
                *event = (struct event){card, XID_CRITICAL, card->xid[j].number, ~0u, ~0u};
                return OK;
            }
    }
    return TIMEOUT;
}
