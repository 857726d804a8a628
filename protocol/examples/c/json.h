/* Enough JSON to read the frames of inferd: a scanner that knows strings and nesting.
 *
 * A key is never looked for inside a string or at another depth, and nothing is read past
 * the end of the text, whatever the text is. Keys are compared as they are written: a
 * daemon spells them without escapes. */

#ifndef JSON_H
#define JSON_H

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* From the quote that begins a string to what stands after the one that ends it. */
static const char *skip_string(const char *at)
{
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    return *at ? at + 1 : at;
}

/* Find the value of a key, depth brackets deep in the value where the search began with
 * *level 0. Another call with the same level searches on. NULL: that value has ended. */
static const char *find_next(const char *at, int *level, int depth, const char *key)
{
    while (at && *at) {
        if (*at == '"') {
            const char *begin = at + 1, *colon;
            at = skip_string(at);
            colon = at + strspn(at, " \t\r");
            if (*level == depth && *colon == ':' && at - begin == (long)strlen(key) + 1 &&
                strncmp(begin, key, strlen(key)) == 0)
                return colon + 1 + strspn(colon + 1, " \t\r");
            continue;
        }
        if (*at == '{' || *at == '[')
            ++*level;
        else if ((*at == '}' || *at == ']') && --*level <= 0)
            break;
        at++;
    }
    return NULL;
}

/* Find the value of a member of an object; NULL if there is none. */
static const char *find(const char *object, const char *key)
{
    int level = 0;
    return find_next(object, &level, 1, key);
}

/* Tell whether a value is a string, one that needs no escapes. */
static bool is(const char *value, const char *text)
{
    size_t n = strlen(text);
    return value && *value == '"' && strncmp(value + 1, text, n) == 0 && value[n + 1] == '"';
}

/* Write a character. */
static void put_utf8(unsigned code, FILE *out)
{
    int n_more = (code >= 0x80) + (code >= 0x800) + (code >= 0x10000);
    static const unsigned char first[] = {0, 0xC0, 0xE0, 0xF0};
    fputc((int)(first[n_more] | code >> 6 * n_more), out);
    while (n_more-- > 0)
        fputc((int)(0x80 | (code >> 6 * n_more & 0x3F)), out);
}

/* Read the four digits that follow *at, and move it to the last of them. */
static unsigned hex4(const char **at)
{
    unsigned code = 0;
    for (int i = 0; i < 4 && isxdigit((unsigned char)(*at)[1]); i++) {
        int digit = tolower((unsigned char)*++*at);
        code = code * 16 + (unsigned)(isdigit(digit) ? digit - '0' : digit - 'a' + 10);
    }
    return code;
}

/* Write the text of a string. */
static void put_string(const char *at, FILE *out)
{
    static const char escapes[] = "b\bf\fn\nr\rt\t";
    if (!at || *at != '"')
        return;
    for (at++; *at && *at != '"'; at++) {
        if (*at != '\\' || !at[1]) {
            fputc(*at, out);
        } else if (*++at == 'u') {
            unsigned code = hex4(&at);
            if (code >> 10 == 0x36 && at[1] == '\\' && at[2] == 'u') { /* half of a pair */
                at += 2;
                code = 0x10000 + ((code & 0x3FF) << 10) + (hex4(&at) & 0x3FF);
            }
            put_utf8(code, out);
        } else {
            const char *escape = strchr(escapes, *at);
            fputc(escape ? escape[1] : *at, out); /* else a quote or a slash */
        }
    }
}

#endif
